package sinktest

import (
	"bytes"
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/waybill-go/waybill/framework/notification"
)

// compare checks that received is what was sent, in the same order. It ignores the fields
// that the destination does not know.
func compare(t *testing.T, received []notification.Envelope, sent []*notification.Delivery) {
	t.Helper()
	if len(received) != len(sent) {
		t.Fatalf("%d deliveries arrived, want %d", len(received), len(sent))
	}
	for i, d := range sent {
		if received[i].ID != d.ID {
			t.Fatalf("delivery %d has id %q, want %q", i, received[i].ID, d.ID)
		}
		compareEnvelope(t, i, received[i], *d.Envelope)
	}
}

// compareSorted is compare for deliveries in any order.
func compareSorted(t *testing.T, received []notification.Envelope, sent []*notification.Delivery) {
	t.Helper()
	received, sent = slices.Clone(received), slices.Clone(sent)
	slices.SortFunc(received, func(a, b notification.Envelope) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(sent, func(a, b *notification.Delivery) int { return cmp.Compare(a.ID, b.ID) })
	compare(t, received, sent)
}

// compareEnvelope ignores fields that are zero in got, since the destination does not know
// them, and metadata that only got has, since a sink may add some.
func compareEnvelope(t *testing.T, i int, got, want notification.Envelope) {
	t.Helper()
	if len(got.Payload) > 0 && !bytes.Equal(got.Payload, want.Payload) {
		t.Errorf("delivery %d has payload %s, want %s", i, abbreviate(got.Payload), abbreviate(want.Payload))
	}
	if len(got.Metadata) > 0 {
		for name, text := range want.Metadata {
			if got.Metadata[name] != text {
				t.Errorf("delivery %d has metadata %q: %s, want %s", i, name, abbreviate(got.Metadata[name]), abbreviate(text))
			}
		}
	}
	got.Payload, got.Metadata = nil, nil
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	for f := range g.NumField() {
		if !g.Field(f).IsZero() && !reflect.DeepEqual(g.Field(f).Interface(), w.Field(f).Interface()) {
			t.Errorf("delivery %d has %s %v, want %v", i, g.Type().Field(f).Name, g.Field(f), w.Field(f))
		}
	}
}

// abbreviate quotes at most the first 100 bytes of a text.
func abbreviate[T string | []byte](text T) string {
	if len(text) <= 100 {
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprintf("%q… (%d bytes)", text[:100], len(text))
}
