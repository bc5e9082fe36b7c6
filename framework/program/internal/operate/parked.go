package operate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/webhooks"
)

func newParked(p *command.Invocation) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "parked",
		Short: "List, show and change parked deliveries",
		Long: `List, show, requeue, reroute, discard or skip parked deliveries.

A delivery is parked if it could not be made when its turn came:

  retrying    it failed, or was requeued or replayed, and waits for its next attempt
  scheduled   it waits for its time
  blocked     it waits for an earlier delivery of its key
  quiet       it waits for the hours of its sink
  dead        it failed for good, and waits for a person
  settling    it was delivered, but a hook of the program fails
  collecting  it is a member of a collection of its sink
  cancelled   it was scheduled, and its publisher has cancelled it

Except for reroute, the commands read only the keys that locate the outbox. With
--database or WAYBILL_DATABASE they need no configuration file.`,
		Args: command.NoSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SetFlagErrorFunc(command.WrongFlag)
	cmd.AddCommand(newParkedList(p), newParkedCauses(p), newParkedShow(p))
	cmd.AddCommand(newParkedActions(p)...)
	return cmd
}

// filterFlags select parked deliveries.
type filterFlags struct {
	admin.Filter
	states, metadata []string
	olderThan, newer ageFlag
}

func (f *filterFlags) add(cmd *cobra.Command, withStates bool) {
	cmd.Flags().StringVar(&f.Sink, "sink", "", "select deliveries to this sink")
	f.addCommon(cmd)
	if withStates {
		cmd.Flags().StringSliceVar(&f.states, "state", nil, "select deliveries in this state: retrying, scheduled, blocked, quiet, dead, settling, collecting or cancelled; may be repeated")
	}
}

// addCommon adds the flags that do not depend on sinks and states.
func (f *filterFlags) addCommon(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.Type, "type", "", "select deliveries of this type, or of all types with a prefix (order.*)")
	cmd.Flags().StringVar(&f.Key, "key", "", "select deliveries of this key")
	cmd.Flags().StringVar(&f.Group, "group", "", "select deliveries that their sink collects in this group")
	cmd.Flags().StringVar(&f.ID, "id", "", "select deliveries of the notification with this id")
	cmd.Flags().StringArrayVar(&f.metadata, "metadata", nil, "select deliveries with this metadata, as `NAME=VALUE`; may be repeated, and all must hold")
	cmd.Flags().StringVar(&f.Error, "error", "", "select deliveries whose last error contains this text, in upper or lower case")
	cmd.Flags().StringVar(&f.Cause, "cause", "", "select deliveries that failed for this cause, as waybill parked causes names it")
	cmd.Flags().Var(&f.olderThan, "older-than", "select deliveries first parked longer ago than this, such as 90m or 7d")
	cmd.Flags().Var(&f.newer, "newer-than", "select deliveries first parked not longer ago than this")
}

// filter returns the checked filter of the flags.
func (f *filterFlags) filter(cmd *cobra.Command) (admin.Filter, error) {
	f.OlderThan, f.NewerThan = f.olderThan.Duration, f.newer.Duration
	f.States = nil
	for _, s := range f.states {
		f.States = append(f.States, store.State(s))
	}
	var err error
	if f.Metadata, err = admin.ParseMetadata(f.metadata); err == nil {
		err = f.Validate()
	}
	if err != nil {
		return f.Filter, command.WrongUsage(cmd, err)
	}
	return f.Filter, nil
}

// isEmpty reports whether a filter selects all.
func isEmpty(f admin.Filter) bool {
	text, err := json.Marshal(f)
	return err == nil && string(text) == "{}"
}

func newParkedList(p *command.Invocation) *cobra.Command {
	l := &parkedList{looking: lookingFor(p)}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List parked deliveries",
		Long: `List parked deliveries by sink and in log order, with their last errors. A delivery is
listed if it matches all flags. waybill parked show shows one notification in full.`,
		Example: `  waybill parked list --sink partner --state dead
  waybill parked list --error 'connection refused' --newer-than 2h --json`,
		Args: command.NoArguments,
		RunE: l.run,
	}
	l.Add(cmd)
	l.filters.add(cmd, true)
	cmd.Flags().IntVar(&l.limit, "limit", 100, "how many deliveries to list at most")
	return cmd
}

type parkedList struct {
	looking
	filters filterFlags
	limit   int
}

func (l *parkedList) run(cmd *cobra.Command, _ []string) error {
	filter, err := l.filters.filter(cmd)
	if err != nil {
		return err
	}
	if l.limit < 1 {
		return command.WrongUsage(cmd, fmt.Errorf("--limit is %d: use at least 1", l.limit))
	}
	return l.inEach(cmd, func(o *operator) (command.Look, error) { return l.find(cmd.Context(), o, filter) })
}

func (l *parkedList) find(ctx context.Context, o *operator, filter admin.Filter) (command.Look, error) {
	counts, err := o.Count(ctx, filter)
	if err != nil {
		return command.Look{}, err
	}
	found := []admin.ParkedView{}
	var place store.ParkedPlace
	for len(found) < l.limit {
		page, err := o.Parked(ctx, filter, place, min(l.limit-len(found), 500))
		if err != nil {
			return command.Look{}, err
		}
		if len(page) == 0 {
			break
		}
		for i := range page {
			found = append(found, admin.ViewOf(&page[i]))
		}
		place = page[len(page)-1].Place()
	}
	return command.Look{
		View: struct {
			Counts []store.ParkedCount `json:"counts"`
			Parked []admin.ParkedView  `json:"parked"`
		}{append([]store.ParkedCount{}, counts...), found},
		Print: func(w io.Writer) { printParked(w, found, counts) },
	}, nil
}

func printParked(w io.Writer, found []admin.ParkedView, counts []store.ParkedCount) {
	if len(found) == 0 {
		terminal.Println(w, "nothing that matches is parked")
		return
	}
	header := []any{"sink", "state", "id", "type", "key", "attempt", "since", "due", "class", "last error"}
	grouped := slices.ContainsFunc(found, func(p admin.ParkedView) bool { return p.Group != "" })
	if grouped {
		header = slices.Insert(header, 5, any("group"))
	}
	list := command.NewTable(w, header...)
	for _, p := range found {
		row := table.Row{p.Sink, p.State, p.ID, p.Type, command.OrDash(p.Key), p.Attempt, command.TimeText(p.FirstParkedAt), command.TimeOrDash(p.DueAt),
			command.OrDash(p.Class), command.FirstLine(cmp.Or(p.HookError, p.LastError), 80)}
		if grouped {
			row = slices.Insert(row, 5, any(command.OrDash(p.Group)))
		}
		list.AppendRow(row)
	}
	list.Render()
	if total := totalOf(counts); total > int64(len(found)) {
		terminal.Printf(w, "\n%d of %d: see --limit\n", len(found), total)
	}
}

func totalOf(counts []store.ParkedCount) (total int64) {
	for _, c := range counts {
		total += c.Count
	}
	return total
}

func newParkedShow(p *command.Invocation) *cobra.Command {
	s := &parkedShow{looking: lookingFor(p)}
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show the parked deliveries of a notification",
		Long: `Show the parked deliveries of one notification in full: envelope, payload, the last
error, and the last five failed attempts, the newest first. An attempt whose number is
not above that of the attempt below was made after a requeue, or the one below used up
no attempt.`,
		Example: `  waybill parked show 0198c2f1-7d2e-7c55-9d6f-0f4d1f2a3b4c
  waybill parked show 0198c2f1-7d2e-7c55-9d6f-0f4d1f2a3b4c --sink partner --json`,
		Args: oneID,
		RunE: s.run,
	}
	s.Add(cmd)
	cmd.Flags().StringVar(&s.sink, "sink", "", "show only the delivery to this sink")
	return cmd
}

// oneID is the Args of commands that take the id of a notification.
var oneID = command.Arguments(1, "give the id of a notification")

type parkedShow struct {
	looking
	sink string
}

func (s *parkedShow) run(cmd *cobra.Command, args []string) error {
	return s.inOne(cmd, func(o *operator) (command.Look, error) {
		found, err := o.Parked(cmd.Context(), admin.Filter{ID: args[0], Sink: s.sink}, store.ParkedPlace{}, 1000)
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("nothing of %s is parked: waybill why %[1]s shows where it is", args[0])
		}
		views := make([]admin.WholeView, len(found))
		for i := range found {
			views[i] = admin.WholeOf(&found[i])
		}
		return command.Look{View: views, Print: func(w io.Writer) {
			for i := range found {
				if i > 0 {
					terminal.Println(w)
				}
				printWhole(w, &found[i])
			}
		}}, err
	})
}

func printWhole(w io.Writer, p *store.ParkedDelivery) {
	e := &p.Envelope
	line := func(name, format string, args ...any) {
		terminal.Printf(w, "%-14s %s\n", name+":", fmt.Sprintf(format, args...))
	}
	line("sink", "%s", p.Sink)
	line("state", "%s, since %s", p.State, command.TimeText(p.UpdatedAt))
	line("id", "%s", e.ID)
	line("type", "%s, version %d", e.Type, e.Version)
	if e.Type == webhooks.Type {
		line("which is", "%s", webhooks.About(e.Metadata))
	}
	line("key", "%s", command.OrDash(e.Key))
	if p.Group != "" {
		line("group", "%s", p.Group)
	}
	if p.Collection != "" {
		line("collection", "%s", store.CollectionRef{Group: p.Group, Number: p.Collection}.ID())
	}
	line("offset", "%d", e.Offset)
	line("occurred on", "%s", command.TimeText(e.OccurredOn))
	line("first parked", "%s", command.TimeText(p.FirstParkedAt))
	if !p.DueAt.IsZero() {
		line("due", "%s", command.TimeText(p.DueAt))
	}
	line("attempts", "%d", p.Attempt)
	class, cause := p.Failure()
	line("last error", "%s", command.OrDash(joined(class, cause)))
	if p.Receipt != "" {
		line("receipt", "%s", p.Receipt)
	}
	if p.HookError != "" {
		line("hook error", "%s", p.HookError)
	}
	if len(p.Attempts) > 0 {
		attempts := command.NewTable(w, "failed at", "attempt", "class", "took", "by", "error")
		appendAttempts(attempts, admin.ViewOf(p).Attempts)
		terminal.Println(w)
		attempts.Render()
		terminal.Println(w)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Metadata)) {
		line("metadata", "%s=%s", name, e.Metadata[name])
	}
	if utf8.Valid(e.Payload) {
		line("payload", "%s", e.Payload)
	} else {
		line("payload", "%d bytes that are not text: see --json", len(e.Payload))
	}
}
