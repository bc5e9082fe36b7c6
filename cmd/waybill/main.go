// Waybill is the command line: it creates the outbox's tables, delivers notifications and shows
// their state. Package program builds the same command line with your own sink kinds and types.
package main

import (
	_ "golang.org/x/crypto/x509roots/fallback" // certificate authorities, for machines without them

	"github.com/waybill-go/waybill/framework/program"
)

func main() { program.Main() }
