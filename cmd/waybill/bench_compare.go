package main

import (
	"github.com/spf13/cobra"
)

func newBenchCompare(p *program) *cobra.Command {
	return &cobra.Command{Use: "compare BEFORE.json AFTER.json", Hidden: true}
}
