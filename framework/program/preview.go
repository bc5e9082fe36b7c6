package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email"
)

func newPreview(p *command.Invocation) *cobra.Command {
	v := &preview{Invocation: p}
	cmd := &cobra.Command{
		Use:   "preview TYPE --data FILE",
		Short: "Show the mail for a notification without sending it",
		Long: `Render the mail for a notification of a type with the templates of an email sink, and
show its header, its text and its files. The mail is the one that waybill forward would
send, with the routes and their payloads applied. --html and --text show only that
part, and --eml shows the mail as it would be sent.

If the sink collects all notifications of a group, the mail is that of a collection of
this notification alone.

The command warns about what is missing: recipients, the text, or an image. It needs
neither the database's address nor the mail server's password.`,
		Example: `  waybill mail preview order.placed --data order.json
  waybill mail preview order.placed --data order.json --locale de --html > order.html
  echo '{"order": 17}' | waybill mail preview order.placed --data - --eml > order.eml`,
		Args: oneType,
		RunE: v.run,
	}
	flags := cmd.Flags()
	v.flags.AddFile(cmd)
	v.sample.add(cmd, "render the mail for")
	flags.StringVar(&v.sink, "sink", "", "email sink to use, if the type goes to several or to none")
	flags.StringVar(&v.locale, "locale", "", "locale to use instead of the one from locale.tmpl")
	flags.StringVar(&v.id, "id", "", "id of that notification (default: a new one)")
	flags.BoolVar(&v.html, "html", false, "show only the HTML, with its images embedded")
	flags.BoolVar(&v.text, "text", false, "show only the text")
	flags.BoolVar(&v.eml, "eml", false, "show the mail as it would be sent")
	flags.BoolVar(&v.json, "json", false, "print the result as JSON")
	return cmd
}

// oneType is the Args of commands that take one type.
func oneType(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return command.WrongUsage(cmd, fmt.Errorf("unexpected argument %q", args[1]))
	}
	return someTypes(cmd, args)
}

// atMostOne returns an error if more than one of the flags is set.
func atMostOne(cmd *cobra.Command, names ...string) error {
	var given []string
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			given = append(given, "--"+name)
		}
	}
	if len(given) < 2 {
		return nil
	}
	return fmt.Errorf("%s contradict each other: leave one of them out", strings.Join(given, " and "))
}

type preview struct {
	*command.Invocation
	flags                 command.SourceFlags
	sample                sample
	id, sink, locale      string
	html, text, eml, json bool
	warnings              []string
	collect               forwarder.Collect // of the sink
}

// mailView is the output of --json.
type mailView struct {
	Type       string              `json:"type"`
	Sink       string              `json:"sink"`
	From       string              `json:"from"`
	Recipients []string            `json:"recipients"`
	Header     []email.HeaderField `json:"header"`
	Locale     string              `json:"locale,omitempty"`
	Text       string              `json:"text,omitempty"`
	HTML       string              `json:"html,omitempty"`
	Files      []email.PreviewFile `json:"files"`
	Warnings   []string            `json:"warnings"`
}

func (v *preview) run(cmd *cobra.Command, args []string) error {
	if err := atMostOne(cmd, "html", "text", "eml", "json"); err != nil {
		return command.WrongUsage(cmd, err)
	}
	if v.sample.file == "" {
		return command.WrongUsage(cmd, errors.New("name a file with the payload: --data order.json, or --data - for standard input"))
	}
	source, err := v.FileSource(cmd, v.flags)
	if err != nil {
		return err
	}
	if err := v.sample.read(cmd); err != nil {
		return err
	}
	e := v.sample.envelope(args[0], v.Options.Types)
	e.ID = cmp.Or(v.id, e.ID)
	published := e
	e, err = v.routed(cmd, source, e)
	if err != nil {
		return err
	}
	composer, err := composerOf(source, v.sink, v.Options.Types)
	if err != nil {
		return err
	}
	if v.sample.version == 0 {
		e.Version = max(e.Version, composer.NewestVersion(e.Type))
	}
	mail, err := v.render(cmd.Context(), composer, published, e)
	if errors.Is(err, email.ErrNoTemplate) {
		return fmt.Errorf("%w; there are templates for %s", err, strings.Join(composer.Types(), ", "))
	}
	if err != nil {
		return err
	}
	mail.Warnings = append(v.warnings, mail.Warnings...)
	for _, warning := range mail.Warnings {
		terminal.Println(v.Stderr, v.Name+": warning:", warning)
	}
	return v.show(e.Type, mail)
}

// render makes the mail of a notification, or of a collection of it if the sink collects all of its group.
// The group is that of the notification as it was published, which a route may have shaped.
func (v *preview) render(ctx context.Context, composer *email.Composer, published, shaped *notification.Envelope) (*email.Preview, error) {
	if v.collect.Keep != forwarder.KeepAll {
		return composer.Preview(shaped, v.locale)
	}
	by, err := v.collect.Group()
	if err != nil {
		return nil, err
	}
	group := published.Key
	if by != nil {
		group, err = by.Of(ctx, published, v.Options.Types)
	}
	switch {
	case err != nil:
		v.warnings = append(v.warnings, fmt.Sprintf("it is not collected but sent alone, since collect.by fails: %s", err))
	case group == "":
		v.warnings = append(v.warnings, "it is not collected but sent alone, since it has no group: collect.by is empty")
	default:
		return composer.PreviewCollection(&sinks.Collection{
			Sink: v.sink, ID: shaped.ID, Group: group, Attempt: 1,
			Members: []*notification.Delivery{{Envelope: shaped, Sink: v.sink, Attempt: 1}},
		}, v.locale)
	}
	return composer.Preview(shaped, v.locale)
}

// routed chooses the email sink: the one of --sink, the one that the type is routed to, or
// the only one. It returns the notification as the routes to that sink shape it.
func (v *preview) routed(cmd *cobra.Command, source config.Source, e *notification.Envelope) (*notification.Envelope, error) {
	c, err := config.LoadDeliveries(source, v.Options)
	if err != nil {
		return nil, err
	}
	routes, err := c.Table()
	if err != nil {
		return nil, err
	}
	var all, reached []string
	for _, name := range slices.Sorted(maps.Keys(c.Sinks)) {
		if c.Sinks[name].Kind == email.Kind().Name {
			all = append(all, name)
		}
	}
	for _, name := range routes.Sinks(e.Type) {
		if slices.Contains(all, name) {
			reached = append(reached, name)
		}
	}
	switch {
	case len(all) == 0:
		return nil, command.WrongUsage(cmd, fmt.Errorf("%s has no sink of kind %s", source.File, email.Kind().Name))
	case v.sink != "" && !slices.Contains(all, v.sink):
		return nil, command.WrongUsage(cmd, fmt.Errorf("--sink: there is no email sink %s; there are %s", v.sink, strings.Join(all, ", ")))
	case v.sink != "":
	case len(reached) == 1:
		v.sink = reached[0]
	case len(all) == 1:
		v.sink = all[0]
	case len(reached) == 0:
		return nil, command.WrongUsage(cmd, fmt.Errorf("%s is routed to no email sink; choose one with --sink: %s", e.Type, strings.Join(all, ", ")))
	default:
		return nil, command.WrongUsage(cmd, fmt.Errorf("%s is routed to several email sinks; choose one with --sink: %s", e.Type, strings.Join(reached, ", ")))
	}
	v.collect = c.Sinks[v.sink].Collect.WithDefaults()
	if !slices.Contains(reached, v.sink) {
		v.warnings = append(v.warnings, fmt.Sprintf("no route leads %s to %s", e.Type, v.sink))
		return e, nil
	}
	shaped, err := routes.To(v.sink).Shape(cmd.Context(), e)
	if shaped == nil && err == nil {
		v.warnings = append(v.warnings, fmt.Sprintf("no condition of the routes to %s holds, so this notification would not go there", v.sink))
		return e, nil
	}
	return shaped, err
}

// composerOf returns what renders a sink's mails. It reads only the keys of rendering, and
// none of the mail server.
func composerOf(source config.Source, sink string, types *registry.Registry) (composer *email.Composer, err error) {
	var settings email.Config
	keys := []string{"from", "reply_to", "templates", "locale", "max_size_mb"}
	err = config.LoadSettings(source, sink, keys, &settings, func() (err error) {
		composer, err = email.NewComposer(sinks.Instance{Name: sink, Types: types}, settings)
		return err
	})
	return composer, err
}

func (v *preview) show(typ string, mail *email.Preview) error {
	var content []byte
	switch {
	case v.json:
		return command.PrintJSON(v.Stdout, v.view(typ, mail))
	case v.html && mail.HTML == "":
		return errors.New("the mail has no html")
	case v.text && mail.Text == "":
		return errors.New("the mail has no text")
	case v.html:
		content = []byte(mail.HTML)
	case v.text:
		content = []byte(mail.Text)
	case v.eml:
		content = mail.Mail
	default:
		printMail(v.Stdout, mail)
		return nil
	}
	_, err := v.Raw.Write(content)
	return err
}

func (v *preview) view(typ string, mail *email.Preview) mailView {
	return mailView{
		Type: typ, Sink: v.sink, From: mail.From, Recipients: append([]string{}, mail.Recipients...), Header: mail.Header,
		Locale: mail.Locale, Text: mail.Text, HTML: mail.HTML,
		Files: append([]email.PreviewFile{}, mail.Files...), Warnings: append([]string{}, mail.Warnings...),
	}
}

// printMail prints a mail: its header and text, then a list of its parts.
func printMail(w io.Writer, mail *email.Preview) {
	for _, f := range mail.Header {
		terminal.Printf(w, "%s: %s\n", f.Name, f.Value)
	}
	fmt.Fprintf(w, "\n%s\n", strings.TrimRight(strings.ReplaceAll(mail.Text, "\r\n", "\n"), "\n"))
	t := command.NewTable(w, "part", "type", "bytes")
	for _, part := range []struct{ name, mediaType, content string }{
		{"text", "text/plain", mail.Text}, {"html", "text/html", mail.HTML},
	} {
		if part.content != "" {
			t.AppendRow(table.Row{part.name, part.mediaType, len(part.content)})
		}
	}
	for _, f := range mail.Files {
		shown := "attachment "
		if f.Inline {
			shown = "image "
		}
		t.AppendRow(table.Row{shown + f.Name, f.MediaType, f.Bytes})
	}
	terminal.Println(w)
	t.Render()
	terminal.Printf(w, "\nto %s", strings.Join(mail.Recipients, ", "))
	if mail.Locale != "" {
		terminal.Printf(w, ", in %s", mail.Locale)
	}
	terminal.Println(w)
}
