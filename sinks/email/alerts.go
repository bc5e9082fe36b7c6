package email

import (
	_ "embed"
	"path"

	"github.com/waybill-go/waybill/framework/notification"
)

//go:embed alert/subject.tmpl
var alertSubject string

//go:embed alert/text.tmpl
var alertText string

// alertFolders returns the built-in templates of Waybill's alerts, for these recipients. They use no layout and nothing of
// the default folder, which may need what an alert has not.
func alertFolders(to string) map[string]folder {
	folders, p := make(map[string]folder), newParser(nil)
	for _, typ := range []string{notification.AlertRaised, notification.AlertCleared} {
		parsed := make(map[string]executor)
		parsed[toFile], _ = p.parseAddressTemplate(path.Join(typ, toFile), to) // a list without expressions
		parsed[subjectFile], _ = p.parseText("", path.Join(typ, subjectFile), alertSubject)
		parsed[textFile], _ = p.parseText("", path.Join(typ, textFile), alertText)
		folders[typ] = folder{name: typ, alone: true, templates: parsed}
	}
	return folders
}
