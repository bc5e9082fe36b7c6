// Package drivers publishes with every driver and library that docs/publishing.md names. It
// has tests only, in a module of its own, so that none of them is a dependency of Waybill.
package drivers
