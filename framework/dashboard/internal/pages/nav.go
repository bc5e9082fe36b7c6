package pages

import "strings"

// link is a page in the navigation.
type link struct{ Name, Path string }

// navigation has the pages of one database.
var navigation = []link{
	{"Overview", "/"},
	{"Parked", "/parked"},
	{"Log", "/log"},
	{"Schedules", "/schedules"},
	{"Endpoints", "/endpoints"},
	{"Forwarders", "/forwarders"},
	{"Types", "/types"},
	{"Actions", "/actions"},
	{"Privacy", "/privacy"},
	{"Config", "/config"},
	{"Doctor", "/doctor"},
}

// Key is the key that opens the page when pressed after g: the first letter of its name, but b for
// the databases and v for privacy. No two pages have the same key.
func (l link) Key() string {
	switch l.Path {
	case "/databases":
		return "b"
	case "/privacy":
		return "v"
	}
	return strings.ToLower(l.Name[:1])
}

// Is reports whether a path is the path of the page or below it.
func (l link) Is(path string) bool {
	return path == l.Path || l.Path != "/" && strings.HasPrefix(path, l.Path+"/")
}
