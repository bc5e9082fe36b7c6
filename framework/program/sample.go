package program

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
	file     string
	payload  []byte
	metadata map[string]string
	key      string
}

// add adds the flags by which a sample is given.
func (s *sample) add(cmd *cobra.Command, what string) {
	cmd.Flags().StringVar(&s.file, "data", "", "file with the payload of a notification to "+what+"; - for standard input")
	cmd.Flags().StringToStringVar(&s.metadata, "metadata", nil, "metadata of that notification, as `name=value`; may be repeated")
	cmd.Flags().StringVar(&s.key, "key", "", "key of that notification")
}

// read reads the sample's payload, where there is to be one.
func (s *sample) read(cmd *cobra.Command) error {
	if s.file == "" {
		if s.key != "" || len(s.metadata) > 0 {
			return wrongUsage(cmd, errors.New("--metadata and --key are of a notification: give its payload with --data"))
		}
		return nil
	}
	var err error
	if s.file == "-" {
		s.payload, err = io.ReadAll(cmd.InOrStdin())
	} else {
		s.payload, err = os.ReadFile(s.file)
	}
	if err != nil {
		return fmt.Errorf("--data: %w", err)
	}
	if !json.Valid(s.payload) {
		return fmt.Errorf("--data: %s is not JSON", s.file)
	}
	return nil
}

// envelope is the sample as a notification of a type, occurred now.
func (s *sample) envelope(typ string) *notification.Envelope {
	return &notification.Envelope{
		ID: notification.NewID(), Type: typ, Version: 1, Key: s.key, OccurredOn: time.Now().UTC().Truncate(time.Microsecond), Metadata: s.metadata, Payload: s.payload,
	}
}

// sampleView is what a path makes of a sample.
type sampleView struct {
	Goes    bool            `json:"goes"`
	Payload json.RawMessage `json:"payload,omitempty"`
	// Error is why it would be dead.
	Error string `json:"error,omitempty"`
}

func (s *sample) ask(path *route.Path, typ string) *sampleView {
	shaped, err := path.Shape(s.envelope(typ))
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
