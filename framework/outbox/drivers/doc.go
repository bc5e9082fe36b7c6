// Package drivers publishes with every driver and library that docs/publishing.md names. It
// has tests only, in a separate module, so that none of them is a dependency of Waybill.
package drivers
