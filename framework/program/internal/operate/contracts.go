package operate

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/contract"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
)

const contractsOf = `The types are those that a program of your own registers, and those that waybill.yaml
names under types. The command needs no database, and no configuration file if the
program registers the types.`

// contracts are the commands on the contracts of types, which only read files.
type contracts struct {
	*command.Invocation
	flags  command.SourceFlags
	json   bool
	compat string
}

func (c *contracts) add(cmd *cobra.Command) {
	c.flags.AddFile(cmd)
	cmd.Flags().BoolVar(&c.json, "json", false, "print the result as JSON")
}

func newTypesExport(p *command.Invocation) *cobra.Command {
	c := &contracts{Invocation: p}
	cmd := &cobra.Command{
		Use:   "export DIR",
		Short: "Write the contracts of the types to a folder",
		Long: `Write the JSON Schema (2020-12) of each version of each type, with its description
and examples, to a file such as order.placed.v2.json. The same types give the same
files. Files of types and versions that are gone stay.

If the folder has contracts that the types break, nothing is written, and the exit code
is 1; --compat says what must keep working, as in waybill types check. With none,
contracts are replaced whatever consumers read.

Doc comments become descriptions if the command runs inside the Go module that has the
sources.

` + contractsOf,
		Example: `  waybill types export schemas
  waybill types export schemas --compat none`,
		Args: command.Arguments(1, "name the folder to write to, such as schemas"),
		RunE: c.export,
	}
	c.add(cmd)
	c.addCompat(cmd)
	return cmd
}

func newTypesCheck(p *command.Invocation) *cobra.Command {
	c := &contracts{Invocation: p}
	cmd := &cobra.Command{
		Use:   "check DIR",
		Short: "Compare the types with the contracts in a folder, and fail if consumers would break",
		Long: `Compare the contracts of the types with those that waybill types export wrote to a
folder, such as the one that is deployed. Each change that breaks consumers is a
sentence, and the exit code is 1. docs/contracts.md has the rules.

--compat says what must keep working within a version: forward (who knows the folder's
schema reads what is published now), backward (who knows the new schema reads what was
published before), full (both) or none.

` + contractsOf,
		Example: `  waybill types check schemas
  waybill types check schemas --compat full`,
		Args: command.Arguments(1, "name the folder with the contracts, such as schemas"),
		RunE: c.check,
	}
	c.add(cmd)
	c.addCompat(cmd)
	return cmd
}

func (c *contracts) addCompat(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.compat, "compat", string(contract.Forward), "what must keep working: forward, backward, full or none")
}

// keep returns the value of --compat.
func (c *contracts) keep(cmd *cobra.Command) (contract.Compatibility, error) {
	keep := contract.Compatibility(c.compat)
	if !keep.Valid() {
		return "", command.WrongUsage(cmd, fmt.Errorf("--compat is %q: use forward, backward, full or none", c.compat))
	}
	return keep, nil
}

// load returns the contracts of the program and its configuration.
func (c *contracts) load() (*contract.Set, error) {
	loaded, err := config.LoadTypes(c.Source(c.flags), c.Options)
	if err != nil {
		return nil, err
	}
	set, err := loaded.Contracts()
	if err == nil && len(set.All()) == 0 {
		err = errors.New("there are no types: register them in a program of your own, or name their schemas under types in waybill.yaml")
	}
	return set, err
}

func (c *contracts) export(cmd *cobra.Command, args []string) error {
	keep, err := c.keep(cmd)
	if err != nil {
		return err
	}
	set, err := c.load()
	if err != nil {
		return err
	}
	if keep != contract.None {
		published, err := contract.ReadFolder(args[0])
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, contract.ErrNoContracts) {
			published, err = new(contract.Set), nil
		}
		if err != nil {
			return err
		}
		if breaks := contract.Compare(published, set, keep); len(breaks) > 0 {
			checked{Breaks: breaks}.print(c, args[0])
			return fmt.Errorf("%s of the contracts in %s: nothing was written; --compat none writes it", command.CountText(int64(len(breaks)), "break", "breaks"), args[0])
		}
	}
	written, err := set.Write(args[0])
	if err != nil {
		return err
	}
	if c.json {
		return command.PrintJSON(c.Stdout, map[string]any{"contracts": len(set.All()), "written": append([]string{}, written...)})
	}
	for _, name := range written {
		terminal.Println(c.Stdout, "wrote", name)
	}
	terminal.Printf(c.Stdout, "%s in %s\n", command.CountText(int64(len(set.All())), "contract", "contracts"), args[0])
	return nil
}

// checked is what --json of check prints.
type checked struct {
	Compat  contract.Compatibility `json:"compat"`
	Breaks  []contract.Break       `json:"breaks"`
	Changed []string               `json:"changed"` // compatibly
	New     []string               `json:"new"`
}

func (c *contracts) check(cmd *cobra.Command, args []string) error {
	keep, err := c.keep(cmd)
	if err != nil {
		return err
	}
	published, err := contract.ReadFolder(args[0])
	if err != nil {
		return err
	}
	next, err := c.load()
	if err != nil {
		return err
	}
	found := checked{Compat: keep, Breaks: append([]contract.Break{}, contract.Compare(published, next, keep)...), Changed: []string{}, New: []string{}}
	for _, now := range next.All() {
		before, ok := published.Of(now.Type, now.Version)
		broken := slices.ContainsFunc(found.Breaks, func(b contract.Break) bool { return b.Type == now.Type && b.Version == now.Version })
		switch {
		case !ok:
			found.New = append(found.New, now.String())
		case !broken && !contract.Same(before, now):
			found.Changed = append(found.Changed, now.String())
		}
	}
	if c.json {
		err = command.PrintJSON(c.Stdout, found)
	} else {
		found.print(c, args[0])
		for _, b := range found.later(published, next) {
			terminal.Println(c.Stdout, "note for encoding and on_invalid, which check stored rows as well:", b.Text)
		}
	}
	if n := int64(len(found.Breaks)); err == nil && n > 0 {
		err = fmt.Errorf("%s of the contracts in %s", command.CountText(n, "break", "breaks"), args[0])
	}
	return err
}

// later returns what breaks reading stored rows, if that is not checked already.
func (f checked) later(published, next *contract.Set) []contract.Break {
	if f.Compat != contract.Forward || len(f.Breaks) > 0 {
		return nil
	}
	return contract.Compare(published, next, contract.Backward)
}

func (f checked) print(c *contracts, folder string) {
	for _, b := range f.Breaks {
		terminal.Println(c.Stdout, b.Text)
	}
	for _, name := range f.Changed {
		terminal.Printf(c.Stdout, "%s has changed, and breaks nothing: write it with %s types export %s\n", name, c.Name, folder)
	}
	for _, name := range f.New {
		terminal.Printf(c.Stdout, "%s is new: write it with %s types export %s\n", name, c.Name, folder)
	}
	if len(f.Breaks) == 0 {
		terminal.Printf(c.Stdout, "nothing breaks the contracts in %s (compat %s)\n", folder, f.Compat)
	}
}
