// Package licenses has the licences of all that the program waybill is made of.
package licenses

import _ "embed"

//go:generate go -C ../deploy/check run ./licenses

// Text names the licence of each module, and then has the texts of the licences.
//
//go:embed licenses.txt
var Text string
