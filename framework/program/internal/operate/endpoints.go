package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/internal/endpoint"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/webhooks"
)

// needsWebhooks ends the help of commands about endpoints.
const needsWebhooks = `The command needs a configuration with a sink of kind webhooks, and reads only this sink
and the keys that locate the outbox.`

func newEndpoints(p *command.Invocation) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "endpoints",
		Short: "List, show and change the endpoints of customers",
		Long: `List, add, show, change, test and recover the endpoints of customers, to which a sink of
kind webhooks delivers. The commands work while forwarders and the application run, and
each change takes effect within a second. waybill actions shows who has changed what.

` + strings.Replace(needsWebhooks, "The command needs", "The commands need", 1),
		Args: command.NoSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SetFlagErrorFunc(command.WrongFlag)
	cmd.AddCommand(newEndpointsList(p), newEndpointShow(p), newEndpointAdd(p), newEndpointUpdate(p), newEndpointRecover(p))
	cmd.AddCommand(newEndpointActions(p)...)
	return cmd
}

// oneEndpoint is the Args of commands that take the id of an endpoint.
var oneEndpoint = command.Arguments(1, "give the id of an endpoint")

// desk is shared by commands that manage endpoints.
type desk struct {
	acting
	reason string
}

// Add adds the flags of commands that change endpoints.
func (d *desk) Add(cmd *cobra.Command) {
	d.acting.Add(cmd)
	cmd.Flags().StringVar(&d.reason, "reason", "", "why, to record it with the action")
}

// open returns what manages the endpoints of an outbox. The returned function closes the database.
func (d *desk) open(ctx context.Context, source config.Source) (*webhooks.Endpoints, func(), error) {
	if source.File == "" {
		return nil, nil, &command.UsageError{Err: errors.New("there is no " + config.DefaultFile + " in this folder, and endpoints need the settings of its sink of kind webhooks: name a configuration file with -c")}
	}
	c, err := config.LoadKind(source, d.Options, webhooks.KindName)
	if err != nil {
		return nil, nil, err
	}
	sink, _ := endpoint.SinkOf(c.ForwarderConfig(nil).Sinks)
	if sink == nil {
		return nil, nil, &command.UsageError{Err: errors.New(source.File + " has no sink of kind webhooks, which has the settings of endpoints: add one")}
	}
	t := c.Tables()
	t.Listen = false
	s, cleanup, err := openStore(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	all, err := sink.Endpoints(s, "")
	if err != nil {
		cleanup()
		return nil, nil, err
	}
	return all.As(admin.New(s, cmp.Or(d.by, defaultOperator())).For(admin.Request{Reason: d.reason})), cleanup, nil
}

// with opens the only database, and does something there.
func (d *desk) with(cmd *cobra.Command, do func(all *webhooks.Endpoints) error) error {
	source, err := d.One(cmd, d.Flags)
	if err != nil {
		return err
	}
	all, cleanup, err := d.open(cmd.Context(), source)
	if err != nil {
		return err
	}
	defer cleanup()
	if err = do(all); errors.Is(err, webhooks.ErrInvalid) {
		return command.WrongUsage(cmd, err)
	}
	return err
}

// inOne opens the only database, and prints what do has found or done there.
func (d *desk) inOne(cmd *cobra.Command, do func(all *webhooks.Endpoints) (command.Look, error)) error {
	return d.with(cmd, func(all *webhooks.Endpoints) error {
		found, err := do(all)
		if err != nil {
			return err
		}
		return d.Show(found)
	})
}

func newEndpointsList(p *command.Invocation) *cobra.Command {
	var query webhooks.Query
	d := &desk{acting: acting{lookingFor(p)}}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List endpoints",
		Long: `List endpoints by tenant, in the order in which they were added. STATE is ok, failing
since its first failure without a later success, disabled, or in trouble, such as if its
condition fails. waybill endpoints show shows one endpoint in full.

` + needsWebhooks,
		Example: `  waybill endpoints list --tenant acme
  waybill endpoints list --troubled --json`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return d.Each(cmd, func(source config.Source) (command.Look, error) {
				all, cleanup, err := d.open(cmd.Context(), source)
				if err != nil {
					return command.Look{}, err
				}
				defer cleanup()
				views, err := listEndpoints(cmd.Context(), all, query)
				return command.Look{View: views, Print: func(w io.Writer) { printEndpoints(w, views) }}, err
			})
		},
	}
	d.looking.Add(cmd)
	cmd.Flags().StringVar(&query.Tenant, "tenant", "", "list the endpoints of this tenant")
	cmd.Flags().BoolVar(&query.Troubled, "troubled", false, "list only endpoints that are failing or in trouble, or that no person has disabled")
	return cmd
}

// listEndpoints returns all endpoints that match, page by page.
func listEndpoints(ctx context.Context, all *webhooks.Endpoints, q webhooks.Query) ([]endpoint.View, error) {
	views := []endpoint.View{}
	for {
		page, err := all.List(ctx, q)
		if err != nil || len(page) == 0 {
			return views, err
		}
		for i := range page {
			views = append(views, endpoint.ViewOf(&page[i]))
		}
		last := page[len(page)-1]
		q.After = store.EndpointPlace{Tenant: last.Tenant, ID: last.ID}
	}
}

func printEndpoints(w io.Writer, views []endpoint.View) {
	if len(views) == 0 {
		terminal.Println(w, "no endpoint matches")
		return
	}
	t := command.NewTable(w, "tenant", "id", "state", "since", "types", "url")
	for _, v := range views {
		since := v.DisabledAt
		if v.Enabled {
			since = v.FailingSince
		}
		t.AppendRow(table.Row{v.Tenant, v.ID, v.State(), command.TimeOrDash(since), command.FirstLine(strings.Join(v.Types, ", "), 40), command.FirstLine(v.URL, 80)})
	}
	t.Render()
}

func newEndpointShow(p *command.Invocation) *cobra.Command {
	d := &desk{acting: acting{lookingFor(p)}}
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show an endpoint with its last attempts",
		Long: `Show one endpoint: its settings, its state, how many deliveries wait for their next
attempt or have failed for good, and its last recorded attempts. Secrets, values of
headers, and what was sent and answered are not shown.

` + needsWebhooks,
		Example: `  waybill endpoints show 0198c2f1-7d2e-7c55-9d6f-0f4d1f2a3b4c`,
		Args:    oneEndpoint,
		RunE: func(cmd *cobra.Command, args []string) error {
			return d.inOne(cmd, func(all *webhooks.Endpoints) (command.Look, error) {
				whole, err := endpoint.Show(cmd.Context(), all, args[0])
				return command.Look{View: whole, Print: func(w io.Writer) { printEndpoint(w, &whole) }}, err
			})
		},
	}
	d.looking.Add(cmd)
	return cmd
}

func printEndpoint(w io.Writer, e *endpoint.Whole) {
	line := func(name, text string) { terminal.Printf(w, "%-14s %s\n", name+":", command.OrDash(text)) }
	line("id", e.ID)
	line("tenant", e.Tenant)
	line("url", e.URL)
	line("description", e.Description)
	line("types", strings.Join(e.Types, ", "))
	line("when", e.When)
	line("headers", strings.Join(slices.Sorted(maps.Keys(e.Headers)), ", "))
	line("rate", e.Rate)
	line("state", e.State())
	if !e.Enabled {
		line("disabled", command.TimeText(e.DisabledAt)+", "+e.DisabledReason)
	}
	if !e.FailingSince.IsZero() {
		line("failing since", command.TimeText(e.FailingSince))
	}
	if e.Trouble != "" {
		line("trouble", e.Trouble)
	}
	line("added", command.TimeText(e.CreatedAt))
	line("changed", command.TimeText(e.ChangedAt))
	line("deliveries", fmt.Sprintf("%d waiting, %d dead", e.Deliveries.Waiting, e.Deliveries.Dead))
	if len(e.Attempts) == 0 {
		return
	}
	terminal.Println(w)
	t := command.NewTable(w, "at", "type", "notification", "attempt", "status", "duration", "error")
	for _, a := range e.Attempts {
		t.AppendRow(table.Row{command.TimeText(a.At), a.Type, a.Notification, a.Number, statusText(a.Status), durationText(a.DurationMS), command.OrDash(command.FirstLine(a.Error, 80))})
	}
	t.Render()
}

// statusText is the status of an answer, or a dash if there was none.
func statusText(status int) string {
	if status == 0 {
		return "-"
	}
	return fmt.Sprint(status)
}

func durationText(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }

// settingFlags are the settings of an endpoint.
type settingFlags struct {
	url, description, when, rate string
	types, headers               []string
}

func (f *settingFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.url, "url", "", "address that gets the requests")
	cmd.Flags().StringVar(&f.description, "description", "", "text for people")
	cmd.Flags().StringSliceVar(&f.types, "types", nil, "types to deliver, with prefixes (order.*); default: all")
	cmd.Flags().StringVar(&f.when, "when", "", "condition, as in routes, such as 'payload.total > 100'")
	cmd.Flags().StringArrayVar(&f.headers, "header", nil, "`NAME=VALUE` of an extra header of each request; may be repeated; NAME= removes one")
	cmd.Flags().StringVar(&f.rate, "rate", "", "most deliveries to it, such as 10/s or 100/m")
}

// apply changes settings to what the flags say.
func (f *settingFlags) apply(cmd *cobra.Command, to *webhooks.Settings) error {
	change, given := endpoint.Change{}, cmd.Flags().Changed
	for name, set := range map[string]func(){
		"url": func() { change.URL = &f.url }, "description": func() { change.Description = &f.description }, "types": func() { change.Types = &f.types },
		"when": func() { change.When = &f.when }, "rate": func() { change.Rate = &f.rate },
	} {
		if given(name) {
			set()
		}
	}
	for _, text := range f.headers {
		name, value, is := strings.Cut(text, "=")
		if !is {
			return command.WrongUsage(cmd, errors.New("--header has no =: write NAME=VALUE"))
		}
		all := make(map[string]string)
		for old, its := range to.Headers {
			if !strings.EqualFold(old, name) {
				all[old] = its
			}
		}
		if to.Headers = all; value != "" {
			all[name] = value
		}
	}
	return change.Apply(to)
}

func newEndpointAdd(p *command.Invocation) *cobra.Command {
	var n webhooks.NewEndpoint
	var flags settingFlags
	var secretFile string
	d := &desk{acting: acting{lookingFor(p)}}
	cmd := &cobra.Command{
		Use:   "add",
		Short: "Add an endpoint, and show its secret once",
		Long: `Add an endpoint of a tenant, and print its id and the secret with which its requests are
verified, which is not shown again. With --asymmetric that is a public key.

` + needsWebhooks,
		Example: `  waybill endpoints add --tenant acme --url https://acme.example/hooks --types 'order.*'
  waybill endpoints add --tenant acme --url https://acme.example/hooks --secret-file acme.secret --json`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if secretFile != "" {
				text, err := os.ReadFile(secretFile)
				if err != nil {
					return command.WrongUsage(cmd, fmt.Errorf("--secret-file: %w", err))
				}
				n.Secret = strings.TrimSpace(string(text))
			}
			return d.inOne(cmd, func(all *webhooks.Endpoints) (command.Look, error) {
				if err := flags.apply(cmd, &n.Settings); err != nil {
					return command.Look{}, err
				}
				added, secret, err := all.Create(cmd.Context(), n)
				return revealed("added", &added, secret), err
			})
		},
	}
	d.Add(cmd)
	flags.add(cmd)
	cmd.Flags().StringVar(&n.Tenant, "tenant", "", "whose endpoint it is")
	cmd.Flags().BoolVar(&n.Asymmetric, "asymmetric", false, "sign with an ed25519 key, of which the customer gets the public part")
	cmd.Flags().StringVar(&secretFile, "secret-file", "", "file with a secret that the customer has already, whsec_ and base64")
	return cmd
}

// revealed returns what is printed of an endpoint with a new secret.
func revealed(done string, e *webhooks.Endpoint, secret string) command.Look {
	view := endpoint.ViewOf(e)
	view.Secret = secret
	return command.Look{View: view, Print: func(w io.Writer) {
		terminal.Printf(w, "%s %s of tenant %s\nto verify its requests, which is not shown again: %s\n", done, view.ID, view.Tenant, secret)
	}}
}

func newEndpointUpdate(p *command.Invocation) *cobra.Command {
	var flags settingFlags
	d := &desk{acting: acting{lookingFor(p)}}
	cmd := &cobra.Command{
		Use:   "update ID",
		Short: "Change the settings of an endpoint",
		Long: `Change settings of an endpoint to those of the flags; others stay. An empty one, as in
--when '', is the default.

` + needsWebhooks,
		Example: `  waybill endpoints update 0198c2f1-7d2e-7c55-9d6f-0f4d1f2a3b4c --url https://new.acme.example/hooks`,
		Args:    oneEndpoint,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.ContainsFunc([]string{"url", "description", "types", "when", "rate", "header"}, cmd.Flags().Changed) {
				return command.WrongUsage(cmd, errors.New("nothing is to change: name a setting, such as --url"))
			}
			return d.inOne(cmd, func(all *webhooks.Endpoints) (command.Look, error) {
				at, err := all.Find(cmd.Context(), args[0])
				if err != nil {
					return command.Look{}, err
				}
				changed, err := all.Update(cmd.Context(), at.Tenant, at.ID, func(e *webhooks.Endpoint) error { return flags.apply(cmd, &e.Settings) })
				return command.Look{View: endpoint.ViewOf(&changed), Print: func(w io.Writer) { terminal.Println(w, "updated", changed.ID) }}, err
			})
		},
	}
	d.Add(cmd)
	flags.add(cmd)
	return cmd
}

func newEndpointRecover(p *command.Invocation) *cobra.Command {
	var since momentFlag
	d := &desk{acting: acting{lookingFor(p)}}
	cmd := &cobra.Command{
		Use:   "recover ID",
		Short: "Deliver again what has failed at an endpoint for good",
		Long: `Deliver again what has failed at an endpoint for good: all its dead deliveries that first
failed at --since or later, with all their attempts, in the order of their keys.

` + needsWebhooks,
		Example: `  waybill endpoints recover 0198c2f1-7d2e-7c55-9d6f-0f4d1f2a3b4c --since 12:00`,
		Args:    oneEndpoint,
		RunE: func(cmd *cobra.Command, args []string) error {
			if since.IsZero() {
				return command.WrongUsage(cmd, errors.New("--since is missing: name a time, or an age such as 2h"))
			}
			return d.with(cmd, func(all *webhooks.Endpoints) error {
				at, err := all.Find(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				plan, err := all.PlanRecovery(cmd.Context(), at.Tenant, at.ID, since.Time)
				if err != nil {
					return err
				}
				b := &bulk{acting: d.acting, yes: true}
				return b.run(cmd, plan, words{Operation: endpoint.Recover, next: again}, nil)
			})
		},
	}
	d.Add(cmd)
	cmd.Flags().Var(&since, "since", "since when, such as 12:00 (UTC), 2h or 2026-01-31T12:00:00Z")
	return cmd
}

// endpointAction is a command that does an operation on one endpoint.
type endpointAction struct {
	desk
	endpoint.Operation
	yes bool
}

func newEndpointActions(p *command.Invocation) []*cobra.Command {
	commands := []*cobra.Command{
		{
			Use: "enable", Short: "Let a disabled endpoint get notifications again",
			Long: `Let a disabled endpoint get notifications again, but nothing of what its tenant got
meanwhile. What was sent to it and is dead can then be recovered.`,
		},
		{
			Use: "disable", Short: "Let an endpoint get nothing more",
			Long: `Let an endpoint get nothing until it is enabled. What it has not got yet becomes dead with
its next attempt, and can be recovered. Its customer sees the reason.`,
		},
		{
			Use: "rotate", Short: "Give an endpoint a new secret, and show it once",
			Long: `Give an endpoint a new secret of the same kind, and print it, which is not shown again. The
old one signs as well until the sink's secret_overlap is over.`,
		},
		{
			Use: "test", Short: "Send a test to an endpoint",
			Long: `Send a test of type ` + webhooks.TestType + ` to an endpoint at once, whether it is enabled or not, and
print its answer. The exit code is 1 if the endpoint does not accept it.`,
		},
		{
			Use: "delete", Short: "Delete an endpoint with its attempts",
			Long: `Delete an endpoint with its attempts. What it has not got yet counts as delivered. The
command asks first; scripts use --yes.`,
		},
	}
	for _, cmd := range commands {
		a := &endpointAction{}
		a.Invocation = p
		a.Operation, _ = endpoint.Named(cmd.Use)
		cmd.Example = "  waybill endpoints " + cmd.Use + " 0198c2f1-7d2e-7c55-9d6f-0f4d1f2a3b4c"
		cmd.Use, cmd.Long, cmd.Args, cmd.RunE = cmd.Use+" ID", cmd.Long+"\n\n"+needsWebhooks, oneEndpoint, a.run
		a.Add(cmd)
		if a.Name == "delete" {
			cmd.Flags().BoolVar(&a.yes, "yes", false, "do not ask for confirmation")
		}
	}
	return commands
}

func (a *endpointAction) run(cmd *cobra.Command, args []string) error {
	asks := a.Name == "delete" && !a.yes
	if asks && (a.JSON || !command.IsTerminal(cmd.InOrStdin())) {
		return command.WrongUsage(cmd, errors.New("there is no terminal to ask on: check with waybill endpoints show, then use --yes"))
	}
	return a.inOne(cmd, func(all *webhooks.Endpoints) (command.Look, error) {
		if asks {
			at, err := all.Find(cmd.Context(), args[0])
			if err != nil {
				return command.Look{}, err
			}
			terminal.Printf(a.Stdout, "%s is the endpoint of tenant %s at %s. Delete it? [y/N] ", at.ID, at.Tenant, at.URL)
			if yes, err := command.SaysYes(cmd.Context(), cmd.InOrStdin()); err != nil || !yes {
				terminal.Println(a.Stdout, "nothing was deleted")
				return command.Look{}, err
			}
		}
		outcome, err := a.Do(cmd.Context(), all, args[0], a.reason)
		if err != nil {
			return command.Look{}, err
		}
		return a.look(&outcome), nil
	})
}

// look returns what is printed of an outcome.
func (a *endpointAction) look(o *endpoint.Outcome) command.Look {
	if o.Secret != "" {
		return revealed(a.Done, &o.Endpoint, o.Secret)
	}
	look := command.Look{View: o.View()}
	switch answer, is := look.View.(endpoint.AnswerView); {
	case is && !answer.Succeeded:
		look.Missing = fmt.Errorf("the endpoint did not accept the test: %s", answer.Error)
		fallthrough
	case is:
		look.Print = func(w io.Writer) {
			terminal.Printf(w, "%s %s: status %s in %s\n", a.Done, o.Endpoint.ID, statusText(answer.Status), durationText(answer.DurationMS))
		}
	case o.Unchanged:
		look.Print = func(w io.Writer) { terminal.Println(w, o.Endpoint.ID, a.Unchanged) }
	default:
		look.Print = func(w io.Writer) { terminal.Println(w, a.Done, o.Endpoint.ID) }
	}
	return look
}
