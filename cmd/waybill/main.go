// Waybill is the program: it makes the outbox's tables, forwards what is in
// them, and shows how that goes. One with sink kinds and types of its own is made in
// the same way: see package program.
package main

import (
	_ "golang.org/x/crypto/x509roots/fallback" // certificate authorities, on machines that have none

	"github.com/waybill-go/waybill/framework/program"
)

func main() { program.Main() }
