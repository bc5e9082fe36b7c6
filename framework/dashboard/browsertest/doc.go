// Package browsertest has the tests of the dashboard and of the customers' portal that need a browser. It is a
// separate module, so that users of Waybill do not depend on the browser's client. The tests fail without
// Chromium or Chrome (Debian's package chromium).
//
//	make test-dashboard
//
// If WAYBILL_SCREENSHOTS is a folder, the tests save pictures of pages there.
package browsertest
