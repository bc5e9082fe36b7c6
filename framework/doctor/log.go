package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/store"
)

func checkRetention(ctx context.Context, x *examination) (verdict, error) {
	if source := store.SourceOf(x.store); source != nil {
		return checkSource(ctx, x, source)
	}
	retention := x.engine().Retention
	if retention == forwarder.KeepForever {
		return ok("the log is kept forever"), nil
	}
	oldest, err := x.store.Oldest(ctx)
	if err != nil {
		return verdict{}, err
	}
	if oldest == nil {
		return ok("the log is empty"), nil
	}
	old := x.now().Sub(oldest.OccurredOn)
	if !admin.KeptTooLong(old, retention) {
		return ok("the oldest row is %s old", age(old)), nil
	}
	holders, err := x.store.Holders(ctx, nil)
	if err != nil {
		return verdict{}, err
	}
	var texts, fixes []string
	for _, h := range holders {
		if kept := x.now().Sub(h.OccurredOn); kept >= retention {
			reason := h.Reason
			if reason == "" {
				reason = "not settled"
			}
			texts = append(texts, fmt.Sprintf("%s keeps rows from offset %d on, %s old: %s", h.Sink, h.Offset, age(kept), reason))
			if h.Sink != store.SinkUnrouted {
				fixes = append(fixes, "waybill forget "+h.Sink+", which deletes what is pending for it")
			}
		}
	}
	if len(texts) > 0 {
		fix := "let a forwarder catch up"
		if len(fixes) > 0 {
			fix += ", or, for a sink that no longer exists: " + strings.Join(fixes, ", ")
		}
		return warn(fix, "retention is %s; %s", age(retention), some(texts)), nil
	}
	return warn("run a forwarder with outbox.retention", "the oldest row is %s old and retention is %s; no sink keeps the row, and no forwarder removes it", age(old), age(retention)), nil
}

// checkSource warns of sinks that are so late that the source may remove records before they
// are delivered: by more than half the time for which it keeps them.
func checkSource(ctx context.Context, x *examination, source store.Source) (verdict, error) {
	sample, err := x.store.Sample(ctx, store.SampleQuery{})
	if err != nil {
		return verdict{}, err
	}
	if sample.Keeps == 0 {
		return ok("%s keeps all records, or does not report for how long it keeps them", source.Name()), nil
	}
	var late []string
	for _, s := range sample.Sinks {
		if s.Lag > sample.Keeps/2 {
			late = append(late, fmt.Sprintf("%s is %s late", s.Sink, age(s.Lag)))
		}
	}
	if len(late) > 0 {
		return warn("let the sinks catch up, or raise retention.ms of the topics", "%s keeps records for %s; %s", source.Name(), age(sample.Keeps), some(late)), nil
	}
	return ok("%s keeps records for %s", source.Name(), age(sample.Keeps)), nil
}

// partitioned is a store whose log may have partitions.
type partitioned interface {
	store.Partitioner
	PartitionsAhead(ctx context.Context) (ahead int, strays bool, err error)
}

func checkPartitions(ctx context.Context, x *examination) (verdict, error) {
	s, is := x.store.(partitioned)
	if !is || !s.Partitioned() {
		return ok("the log is one table"), nil
	}
	ahead, strays, err := s.PartitionsAhead(ctx)
	const fix = "run waybill migrate as the owner of the log"
	switch {
	case err != nil:
		return verdict{}, err
	case ahead == 0:
		return fail(fix, "no partition is ahead of the log"), nil
	case ahead == 1:
		return warn(fix, "only 1 partition is ahead of the log"), nil
	case strays:
		return warn("none needed: outbox.retention removes the rows", "%s ahead of the log, and the default partition has rows", count(ahead, "partition")), nil
	}
	return ok("%s ahead of the log", count(ahead, "partition")), nil
}

func checkDisk(ctx context.Context, x *examination) (verdict, error) {
	var folder string
	var used int64
	var err error
	if x.lite != nil {
		folder, used, err = x.lite.File(ctx)
	} else if x.my != nil {
		used, err = x.my.LogBytes(ctx)
	} else if used, err = x.pg.LogBytes(ctx); err == nil {
		folder, err = x.pg.Folder(ctx)
	}
	if err != nil {
		return verdict{}, err
	}
	free, all, known := x.disk(folder)
	if !known || folder == "" {
		return skip(fmt.Sprintf("the log has %s; the server does not report the free space of its disk", size(used)), "monitor the disk on the server's machine"), nil
	}
	daily, err := growth(ctx, x.store, used, x.now())
	if err != nil {
		return verdict{}, err
	}
	return judgeDisk(used, daily, free, all), nil
}

// growth returns how many bytes the log grows a day, estimated from its size and the age of its
// oldest row. It returns 0, for not known, if the log covers less than an hour.
func growth(ctx context.Context, s Store, used int64, now time.Time) (int64, error) {
	oldest, err := s.Oldest(ctx)
	if err != nil || oldest == nil {
		return 0, err
	}
	covered := now.Sub(oldest.OccurredOn)
	if covered < time.Hour {
		return 0, nil
	}
	return int64(float64(used) * float64(24*time.Hour) / float64(covered)), nil
}

func judgeDisk(used, daily, free, all int64) verdict {
	text := fmt.Sprintf("the log has %s, and %s of %s are free", size(used), size(free), size(all))
	if daily > 0 {
		text += fmt.Sprintf("; it grows by up to %s a day", size(daily))
	}
	const fix = "free space on the disk, or shorten outbox.retention"
	switch {
	case free < all/50:
		return fail(fix, "%s", text)
	case free < all/20, free < daily:
		return warn(fix, "%s", text)
	}
	return ok("%s", text)
}
