package program

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/registry"
)

// sample is a notification that the user gives with flags.
type sample struct {
	file     string
	payload  []byte
	metadata map[string]string
	key      string
	version  int
}

// add adds the flags of a sample.
func (s *sample) add(cmd *cobra.Command, what string) {
	cmd.Flags().StringVar(&s.file, "data", "", "file with the payload of the notification to "+what+"; - for standard input")
	cmd.Flags().StringToStringVar(&s.metadata, "metadata", nil, "metadata of that notification, as `name=value`; may be repeated")
	cmd.Flags().StringVar(&s.key, "key", "", "key of that notification")
	cmd.Flags().IntVar(&s.version, "data-version", 0, "version of that payload (default: the newest that the program or the templates read)")
}

// read reads the sample's payload, if --data names a file.
func (s *sample) read(cmd *cobra.Command) error {
	if s.file == "" {
		if s.key != "" || len(s.metadata) > 0 || s.version != 0 {
			return command.WrongUsage(cmd, errors.New("--metadata, --key and --data-version need --data with the payload of the notification"))
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

// envelope returns the sample as a notification of a type that occurred now. types may be nil.
func (s *sample) envelope(typ string, types *registry.Registry) *notification.Envelope {
	version := cmp.Or(s.version, 1)
	if types != nil && s.version == 0 {
		if known, ok := types.Lookup(typ); ok {
			version = known.Version
		}
	}
	return &notification.Envelope{
		ID: notification.NewID(), Type: typ, Version: version, Key: s.key, OccurredOn: time.Now().UTC().Truncate(time.Microsecond), Metadata: s.metadata, Payload: s.payload,
	}
}

// sampleView is what a sink would get of a sample.
type sampleView struct {
	Goes    bool            `json:"goes"`
	Payload json.RawMessage `json:"payload,omitempty"`
	// Error is why the delivery would be dead.
	Error string `json:"error,omitempty"`
}

func (s *sample) ask(path *route.Path, typ string, types *registry.Registry) *sampleView {
	shaped, err := path.Shape(context.Background(), s.envelope(typ, types))
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
		terminal.Printf(w, " this notification would be dead for %s: %s\n", sink, v.Error)
	case !v.Goes:
		terminal.Printf(w, " this notification does not go to %s: no condition holds\n", sink)
	default:
		terminal.Printf(w, " this notification goes to %s: %s\n", sink, v.Payload)
	}
}
