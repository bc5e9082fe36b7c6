package bench

import (
	"fmt"
	"html/template"
	"io"

	"github.com/waybill-go/waybill/benchmarks/result"
)

// WritePage writes the result as one page with plots that needs nothing else: no
// other files, no network, no scripts.
func WritePage(w io.Writer, r *result.Result) error { return page.Execute(w, r) }

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"images":  images,
	"explain": func(s result.Scenario) string { return explanations[s.Name] },
	"time":    func(r *result.Result) string { return r.Started.Format("2 January 2006, 15:04 UTC") },
	"seconds": func(r *result.Result) string { return fmt.Sprintf("%.0f s", r.Seconds) },
}).Parse(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>waybill bench</title>
<style>
body { font: 16px/1.5 system-ui, "Segoe UI", Roboto, Arial, sans-serif; color: #222; background: #fff; max-width: 56rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; display: block; overflow-x: auto } th, td { padding: .25rem .75rem; border-bottom: 1px solid #e4e7eb; text-align: right; white-space: nowrap }
th:first-child, td:first-child { text-align: left } svg { width: 100%; height: auto; margin: 1rem 0 } .bad { color: #a00 }
</style>
</head>
<body>
<h1>waybill bench</h1>
<p>{{time .}}, {{seconds .}}, waybill {{.Waybill}}. {{.Where}} {{.How}} {{.Caches}}</p>
<p{{if not .OK}} class="bad"{{end}}>{{.Verdict}}</p>
{{with .Losses}}<ul class="bad">{{range .}}<li>{{.}}</li>{{end}}</ul>{{end}}
{{with .Advice}}<p><strong>{{.}}</strong></p>{{end}}
{{with .Warnings}}<p>Before you trust these figures:</p><ul>{{range .}}<li>{{.}}</li>{{end}}</ul>{{end}}
{{range .Scenarios}}
<h2>{{.Name}}</h2>
<p>{{explain .}}</p>
{{range images .}}{{.}}{{end}}
<table>{{range $n, $line := .Grid}}<tr>{{range $line}}{{if $n}}<td>{{.}}</td>{{else}}<th>{{.}}</th>{{end}}{{end}}</tr>{{end}}</table>
{{range .Cases}}{{if .Skipped}}<p>{{.Name}} was skipped: {{.Skipped}}</p>{{end}}{{end}}
{{end}}
</body>
</html>
`))
