package email

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"mime"
	"path"
	"regexp"
	"strings"

	"github.com/waybill-go/waybill/sinks/internal/line"
)

// file is an image inside a mail, or an attachment.
type file struct {
	name      string
	mediaType string
	data      []byte
}

// contentID returns the id by which HTML shows the file. It depends on the content, because mail
// programs may show a cached picture for an id that they already know.
func (f *file) contentID(domain string) string {
	sum := sha256.Sum256(append([]byte(f.name+"\x00"), f.data...))
	return hex.EncodeToString(sum[:12]) + "@" + domain
}

// mediaTypes are the media types of files by their endings. The system's list is not used, because
// the same mail would differ between machines.
var mediaTypes = map[string]string{
	".csv": "text/csv", ".gif": "image/gif", ".html": "text/html", ".ics": "text/calendar", ".jpeg": "image/jpeg", ".jpg": "image/jpeg",
	".json": "application/json", ".pdf": "application/pdf", ".png": "image/png", ".svg": "image/svg+xml", ".txt": "text/plain",
	".webp": "image/webp", ".xml": "application/xml", ".zip": "application/zip",
	".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
	".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}

func mediaTypeOf(name string) string {
	if known := mediaTypes[strings.ToLower(path.Ext(name))]; known != "" {
		return known
	}
	return "application/octet-stream"
}

// shownImage matches an image in HTML: cid:logo.png up to a quote, a bracket, a space or the end.
var shownImage = regexp.MustCompile(`\bcid:([A-Za-z0-9][A-Za-z0-9._-]*)(["')\s>]|$)`)

// imagesIn lists the names of the images in HTML, each once.
func imagesIn(html string) []string {
	if !strings.Contains(html, "cid:") {
		return nil
	}
	var names []string
	seen := make(map[string]bool)
	for _, found := range shownImage.FindAllStringSubmatch(html, -1) {
		if name := found[1]; !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}

// replaceImage replaces cid: and a file's name by a URL.
func replaceImage(html, name, url string) string {
	return shownImage.ReplaceAllStringFunc(html, func(found string) string {
		parts := shownImage.FindStringSubmatch(found)
		if parts[1] != name {
			return found
		}
		return url + parts[2]
	})
}

// attached is a line of attachments.tmpl that the function attachment has made.
type attached struct {
	Name string `json:"name"`
	Type string `json:"type"`
	Data string `json:"data"`
}

// attachment is a template function. It makes a line of attachments.tmpl for a file in the payload,
// from its name, media type and content in base64:
// {{attachment .Payload.invoice.name "application/pdf" .Payload.invoice.data}}.
func attachment(name, mediaType, data any) (string, error) {
	line, err := json.Marshal(attached{fmt.Sprint(name), fmt.Sprint(mediaType), fmt.Sprint(data)})
	return string(line), err
}

// maxFileName is the longest name of a file in bytes. It limits the header of a part.
const maxFileName = 200

func (a attached) file() (*file, error) {
	name := line.Collapse(a.Name)
	switch {
	case name == "" || name == "." || name == ".." || strings.ContainsAny(name, `/\`):
		return nil, quoting(fmt.Errorf("%w: the name of a file is empty or a path", ErrAttachment), a.Name)
	case len(name) > maxFileName:
		return nil, fmt.Errorf("%w: a file's name of %d bytes is too long, the limit is %d", ErrAttachment, len(name), maxFileName)
	}
	mediaType, params, err := mime.ParseMediaType(a.Type)
	if err == nil {
		mediaType = mime.FormatMediaType(mediaType, params)
	}
	main, _, found := strings.Cut(mediaType, "/")
	switch {
	case err != nil || !found:
		return nil, quoting(fmt.Errorf("%w: use a media type like application/pdf", ErrAttachment), name+": "+a.Type)
	case main == "multipart" || main == "message":
		return nil, quoting(fmt.Errorf("%w: %s cannot be attached as base64; use application/octet-stream", ErrAttachment, main), name)
	}
	data, err := base64.StdEncoding.DecodeString(a.Data)
	if err != nil {
		return nil, quoting(fmt.Errorf("%w: its data is not base64 (RFC 4648, section 4): %w", ErrAttachment, err), name)
	}
	return &file{name: name, mediaType: mediaType, data: data}, nil
}

// parseAttachments parses the result of attachments.tmpl. Each line is the name of a file next to
// the templates, which find looks up, or the result of the function attachment.
func parseAttachments(text string, find func(name string) *file) ([]*file, error) {
	var list []*file
	for entry := range strings.Lines(text) {
		entry = strings.TrimSpace(entry)
		switch {
		case entry == "":
			continue
		case strings.HasPrefix(entry, "{"):
			var a attached
			if err := json.Unmarshal([]byte(entry), &a); err != nil {
				return nil, fmt.Errorf("%w: a line is not a result of the function attachment: %w", ErrAttachment, err)
			}
			f, err := a.file()
			if err != nil {
				return nil, err
			}
			list = append(list, f)
		default:
			f := find(entry)
			if f == nil {
				return nil, quoting(fmt.Errorf("%w: there is no such file next to the templates", ErrAttachment), entry)
			}
			list = append(list, f)
		}
	}
	return list, nil
}
