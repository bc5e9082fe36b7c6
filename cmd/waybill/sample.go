package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
)

// sample is what is known of a notification that is not in the outbox.
type sample struct {
	payload  []byte
	metadata map[string]string
	key      string
}

// readSample reads the sample's payload, where there is to be one.
func (e *explain) readSample(cmd *cobra.Command) error {
	if e.data == "" {
		if e.sample.key != "" || len(e.sample.metadata) > 0 {
			return wrongUsage(cmd, errors.New("--metadata and --key are of a notification: give its payload with --data"))
		}
		return nil
	}
	var err error
	if e.data == "-" {
		e.sample.payload, err = io.ReadAll(cmd.InOrStdin())
	} else {
		e.sample.payload, err = os.ReadFile(e.data)
	}
	if err != nil {
		return fmt.Errorf("--data: %w", err)
	}
	if !json.Valid(e.sample.payload) {
		return fmt.Errorf("--data: %s is no JSON", e.data)
	}
	return nil
}

// sampleView is what a path makes of a sample.
type sampleView struct {
	Goes    bool            `json:"goes"`
	Payload json.RawMessage `json:"payload,omitempty"`
	// Error is why it would be dead.
	Error string `json:"error,omitempty"`
}

func (s sample) ask(path *route.Path, typ string) *sampleView {
	shaped, err := path.Shape(&notification.Envelope{
		ID: notification.NewID(), Type: typ, Version: 1, Key: s.key, OccurredOn: time.Now().UTC().Truncate(time.Microsecond), Metadata: s.metadata, Payload: s.payload,
	})
	switch {
	case err != nil:
		return &sampleView{Error: err.Error()}
	case shaped == nil:
		return &sampleView{}
	}
	return &sampleView{Goes: true, Payload: shaped.Payload}
}

func (v *sampleView) print(w io.Writer, sink string) {
	switch {
	case v.Error != "":
		fmt.Fprintf(w, " this one would be dead for %s: %s\n", sink, v.Error)
	case !v.Goes:
		fmt.Fprintf(w, " this one passes %s by: no condition holds\n", sink)
	default:
		fmt.Fprintf(w, " this one goes to %s: %s\n", sink, v.Payload)
	}
}
