// Package browsertest has the tests of the dashboard that need a browser. It is a module of its
// own, so that no user of Waybill gets the browser's client. The tests need Chromium or Chrome
// (Debian's package chromium); without one they fail.
//
//	make test-dashboard
//
// With WAYBILL_SCREENSHOTS set to a folder, pages are kept there as pictures.
package browsertest
