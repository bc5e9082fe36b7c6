package email

import (
	"context"
	"slices"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email/mailserver"
)

// collectionFolder has the templates for collections of several types.
const collectionFolder = "collection"

// CollectionSize returns 0: a mail can have any number of members, up to the size of mails.
func (s *Sink) CollectionSize() int { return 0 }

// DeliverCollection sends one mail for all members. Its templates are those of the members' type, or
// those in the folder "collection" if there are several types. Subject, text, html and attachments are
// made once, from the [Data.Items]. Each address template is executed for each member, and must give
// the same addresses for all; otherwise the collection is invalid, with a [*sinks.DifferError].
// Locale and list-unsubscribe are those of the last member.
//
// Message-ID and MIME boundaries come from the id of the collection, and Date is the latest of the
// members', so a repeat is the same mail. Receipt and errors are those of [Sink.Deliver]; the
// collection is unknown if one of its members is.
func (s *Sink) DeliverCollection(ctx context.Context, c *sinks.Collection) (notification.Receipt, error) {
	m, err := s.composer.composeAll(c)
	return s.send(ctx, collectionFolder, c.ID, m, err)
}

func (c *Composer) composeAll(all *sinks.Collection) (*mailserver.Message, error) {
	d, err := c.draftAll(all)
	if err != nil {
		return nil, err
	}
	return c.send(d)
}

// draftAll returns the draft of a collection. If its members have several versions, the templates are
// those for the newest.
func (c *Composer) draftAll(all *sinks.Collection) (*draft, error) {
	name, version := c.folderOf(all.Members[0].Type), 0
	for _, m := range all.Members {
		version = max(version, m.Version)
	}
	data := &Data{ID: all.ID, Type: name, Version: version, Count: len(all.Members), Group: all.Group}
	if slices.ContainsFunc(all.Members, func(m *notification.Delivery) bool { return c.folderOf(m.Type) != name }) {
		name, data.Type, data.Version = collectionFolder, "", 0
	}
	own := c.templates.folder(name, version)
	head := &notification.Envelope{ID: all.ID, Type: name}
	for _, m := range all.Members {
		read, err := c.readable(own, m.Envelope)
		if err != nil {
			return nil, err
		}
		item, err := newItem(read)
		if err != nil {
			return nil, err
		}
		item.Count, item.Group = data.Count, data.Group
		data.Items = append(data.Items, item)
		if at := date(m.Envelope); at.After(head.OccurredOn) {
			head.OccurredOn = at
		}
	}
	data.OccurredOn = head.OccurredOn
	return &draft{head, own, data}, nil
}
