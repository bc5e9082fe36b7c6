package command

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/vbauerster/mpb/v8/cwriter"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/program/internal/columns"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
)

// PrintJSON writes a result as JSON for people and programs.
func PrintJSON(w io.Writer, result any) error {
	text, err := admin.JSON(result)
	if err != nil {
		return err
	}
	_, err = terminal.JSON(w).Write(text)
	return err
}

// TimeOrDash is TimeText, or a dash for the zero time.
func TimeOrDash(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return TimeText(t)
}

// NewTable returns a table with all columns aligned to the left.
func NewTable(w io.Writer, header ...any) table.Writer {
	return columns.New(w, len(header), header...)
}

// OrDash returns a dash for no text.
func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// TimeText returns a time as people read it, in UTC.
func TimeText(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// FirstLine returns the first line of a text, cut after limit bytes.
func FirstLine(text string, limit int) string {
	line, _, more := strings.Cut(text, "\n")
	if len(line) > limit {
		for limit > 0 && !utf8.RuneStart(line[limit]) {
			limit--
		}
		line, more = line[:limit], true
	}
	if more {
		line += "…"
	}
	return line
}

// CountText returns a number with its noun.
func CountText(n int64, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// SaysYes reads one line, and returns true for y or yes. It returns early if ctx ends.
func SaysYes(ctx context.Context, r io.Reader) (bool, error) {
	answer := make(chan string, 1)
	go func() {
		line, err := bufio.NewReader(r).ReadString('\n')
		if err != nil {
			line = ""
		}
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case text := <-answer:
		return text == "y" || text == "yes", nil
	}
}

// IsTerminal reports whether a person can answer. A reader that is not a file counts, since
// tests answer through one.
func IsTerminal(r io.Reader) bool {
	file, isFile := r.(*os.File)
	return !isFile || cwriter.IsTerminal(int(file.Fd()))
}
