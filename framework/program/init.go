package program

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
)

// example is a commented configuration to start from.
//
//go:embed example.yaml
var example string

func newInit(p *command.Invocation) *cobra.Command {
	i := &initialize{Invocation: p}
	cmd := &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a commented configuration to start from",
		Long: `Write a commented configuration to waybill.yaml, to another file, or with - to standard
output. It works unchanged once the environment variables that it refers to are set. An
existing file is left unchanged, and the exit code is 2.`,
		Example: `  waybill config init
  waybill config init - | less`,
		Args: cobra.ArbitraryArgs, // run checks them
		RunE: i.run,
	}
	cmd.Flags().BoolVar(&i.json, "json", false, "print the file's name and the variables to set as JSON")
	return cmd
}

type initialize struct {
	*command.Invocation
	json bool
}

func (i *initialize) run(cmd *cobra.Command, args []string) error {
	file := config.DefaultFile
	if len(args) > 0 {
		if err := command.NoArguments(cmd, args[1:]); err != nil {
			return err
		}
		file = args[0]
	}
	if file == "" {
		return command.WrongUsage(cmd, errors.New("the name of the file is empty"))
	}
	if file == "-" {
		if i.json {
			return command.WrongUsage(cmd, errors.New("stdout gets the file, which is YAML: leave --json out, or name a file"))
		}
		_, err := fmt.Fprint(i.Raw, example)
		return err
	}
	switch err := writeNew(file, example); {
	case errors.Is(err, fs.ErrExist):
		return command.WrongUsage(cmd, fmt.Errorf("%s exists: name another file", file))
	case err != nil:
		return err
	}
	variables := placeholders(example)
	if i.json {
		return command.PrintJSON(i.Stdout, struct {
			File      string   `json:"file"`
			Variables []string `json:"variables"`
		}{file, variables})
	}
	terminal.Printf(i.Stdout, "wrote %s: set %s, then run waybill config check -c %[1]s\n", file, strings.Join(variables, ", "))
	return nil
}

// writeNew writes a file that must not exist. If it fails, it leaves no file.
func writeNew(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// placeholder matches a reference to a variable outside of comments.
var placeholder = regexp.MustCompile(`(?m)^[^#\n]*\$\{(\w+)\}`)

// placeholders lists the variables that a configuration refers to, in order.
func placeholders(text string) []string {
	var names []string
	for _, match := range placeholder.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(names, match[1]) {
			names = append(names, match[1])
		}
	}
	return names
}
