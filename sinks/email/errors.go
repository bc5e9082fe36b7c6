package email

import (
	"errors"
	"strconv"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/line"
)

// ErrTemplates is wrapped by all mistakes in the templates that New finds.
var ErrTemplates = errors.New("templates")

// Errors of one envelope, before anything is sent. All are invalid, except ErrNoTemplate and
// ErrVersion.
var (
	// ErrPayload means that the payload is not JSON.
	ErrPayload = errors.New("payload is not JSON")
	// ErrNoTemplate means that the type lacks a template for a part of the mail. It is
	// unknown.
	ErrNoTemplate = errors.New("no template")
	// ErrVersion means that the templates do not read the version of the payload, or that nothing
	// says so and they fail. It is unknown.
	ErrVersion = errors.New("no templates for the version")
	// ErrRender means that a template failed, usually because of a missing field.
	ErrRender = errors.New("cannot render")
	// ErrAddress means that the result of a template has no valid addresses.
	ErrAddress = errors.New("no valid address")
	// ErrSubject means that the subject is empty or too long.
	ErrSubject = errors.New("no valid subject")
	// ErrLocale means that the result of a template is not a locale.
	ErrLocale = errors.New("no valid locale")
	// ErrUnsubscribe means that the result of a template is not a URL to unsubscribe.
	ErrUnsubscribe = errors.New("no valid URL to unsubscribe")
	// ErrAttachment means that an attachment does not exist or is malformed.
	ErrAttachment = errors.New("no valid attachment")
)

// maxText is the number of bytes after which a text in a mistake is cut off.
const maxText = 200

// quoting adds a text of the notification, which may be private, to an error, as its answer: see [sinks.WithAnswer].
func quoting(err error, text string) error {
	return sinks.WithAnswer(err, strconv.Quote(line.Of(text, maxText)))
}
