package archive

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// Read calls row with each row of an archive. Files whose names end with .gz or .zst are decompressed. Its
// error has the file and the number of the row.
func Read(path string, row func(*Line) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	from := io.Reader(bufio.NewReader(f))
	switch {
	case strings.HasSuffix(path, ".gz"):
		from, err = gzip.NewReader(from)
	case strings.HasSuffix(path, ".zst"):
		var z *zstd.Decoder
		if z, err = zstd.NewReader(from, zstd.WithDecoderConcurrency(1)); err == nil {
			defer z.Close()
		}
		from = z
	}
	for n, lines := 1, json.NewDecoder(from); err == nil; n++ {
		var line Line
		if err = lines.Decode(&line); errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = row(&line)
		}
		if err != nil {
			err = fmt.Errorf("row %d: %w", n, err)
		}
	}
	return fmt.Errorf("%s: %w", path, err)
}
