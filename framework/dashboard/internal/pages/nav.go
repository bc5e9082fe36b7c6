package pages

import "strings"

// link is a page in the navigation.
type link struct{ Name, Path string }

// navigation are the pages about a database.
var navigation = []link{
	{"Overview", "/"},
	{"Parked", "/parked"},
	{"Log", "/log"},
	{"Schedules", "/schedules"},
	{"Forwarders", "/forwarders"},
	{"Types", "/types"},
	{"Actions", "/actions"},
	{"Config", "/config"},
	{"Doctor", "/doctor"},
}

// Key is what leads there behind g: its first letter, which no other page has, or b for the
// databases.
func (l link) Key() string {
	if l.Path == "/databases" {
		return "b"
	}
	return strings.ToLower(l.Name[:1])
}

// Is reports whether a path is the page's or one below it.
func (l link) Is(path string) bool {
	return path == l.Path || l.Path != "/" && strings.HasPrefix(path, l.Path+"/")
}
