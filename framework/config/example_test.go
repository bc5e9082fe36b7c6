package config_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/config/database"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/jsonlines"
)

// An application that forwards in its own process reads the same file as the program waybill, and adds
// Go values such as sinks.
func ExampleLoad() {
	ctx, stop := context.WithCancel(context.Background())
	folder, err := os.MkdirTemp("", "shop")
	check(err)
	defer os.RemoveAll(folder)
	file := filepath.Join(folder, "waybill.yaml")
	check(os.WriteFile(file, []byte(`
database: "sqlite:${FOLDER}/shop.db"
sinks: {printer: {kind: go, parallelism: {threshold: 4}}}
routes: {"order.*": [printer]}
`), 0o600))

	kinds, err := sinks.NewSet(sinks.GoKind(map[string]func(sinks.Instance) (sinks.Sink, error){
		"printer": func(sinks.Instance) (sinks.Sink, error) {
			return sinks.Func(func(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
				fmt.Printf("%s: %s\n", d.Type, d.Payload)
				stop()
				return "printed", nil
			}), nil
		},
	}))
	check(err)
	c, err := config.Load(config.Source{File: file, Environ: []string{"FOLDER=" + folder}}, config.Options{Kinds: kinds})
	check(err)
	outbox, closeOutbox, err := database.Create(c.Tables())
	check(err)
	defer closeOutbox()
	_, err = outbox.Migrate(ctx, 0)
	check(err)
	store, err := outbox.Store(ctx)
	check(err)
	_, err = outbox.DB().ExecContext(ctx, `INSERT INTO outbox (type, payload) VALUES ('order.placed', '{"order": 17}')`)
	check(err)

	f, err := forwarder.New(c.ForwarderConfig(store))
	check(err)
	check(f.Run(ctx))
	// Output: order.placed: {"order": 17}
}

// Load reports all mistakes of a configuration at once, each with its line.
func ExampleLoad_mistakes() {
	folder, err := os.MkdirTemp("", "shop")
	check(err)
	defer os.RemoveAll(folder)
	file := filepath.Join(folder, "waybill.yaml")
	check(os.WriteFile(file, []byte(`database: postgres://localhost/shop
sinks:
  lines: {kind: jsonlines, with: {path: notifications.jsonl}, timeout: soon}
routes:
  order.placed: [line]
`), 0o600))

	kinds, err := sinks.NewSet(jsonlines.Kind())
	check(err)
	_, err = config.Load(config.Source{File: file}, config.Options{Kinds: kinds})
	fmt.Println(strings.ReplaceAll(err.Error(), folder+string(filepath.Separator), ""))
	// Output:
	// waybill.yaml:3: sinks.lines.timeout is "soon": write a duration with its unit, like 1m30s
	// waybill.yaml:5: routes.order.placed names the unknown sink "line"; did you mean lines?
}

// The retry policy of a type may differ from that of the sink.
func ExampleConfig_Effective() {
	folder, err := os.MkdirTemp("", "shop")
	check(err)
	defer os.RemoveAll(folder)
	file := filepath.Join(folder, "waybill.yaml")
	check(os.WriteFile(file, []byte(`
database: postgres://localhost/shop
sinks:
  lines:
    kind: jsonlines
    with: {path: notifications.jsonl}
    retry: {max_attempts: 5, types: {"order.*": {max_attempts: 20}}}
routes: {"*": [lines]}
`), 0o600))

	kinds, err := sinks.NewSet(jsonlines.Kind())
	check(err)
	c, err := config.Load(config.Source{File: file}, config.Options{Kinds: kinds})
	check(err)
	for _, typ := range []string{"order.placed", "customer.moved"} {
		s, from := c.Effective("lines", typ)
		fmt.Printf("%s: %d attempts, the first pause is %s, %q\n", typ, s.Retry.MaxAttempts, s.Retry.Initial, from)
	}
	// Output:
	// order.placed: 20 attempts, the first pause is 1s, "order.*"
	// customer.moved: 5 attempts, the first pause is 1s, ""
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
