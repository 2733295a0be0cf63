package file

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/internal/sys"
)

// readRows reads the records of all published files of a folder.
func readRows[R any](ctx context.Context, dir string) (recs []R, err error) {
	files, err := sys.From(ctx).Files(dir)
	if err != nil {
		return nil, fmt.Errorf("file: %w", err)
	}
	defer func() { err = errors.Join(err, files.Close()) }()
	names, err := files.List(".")
	if err != nil {
		return nil, fmt.Errorf("file: %w", err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "/") || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
			continue
		}
		if recs, err = readPart(recs, files, name); err != nil {
			return nil, fmt.Errorf("file: read %s in %s back: %w", name, dir, err)
		}
	}
	return recs, nil
}

func readPart[R any](recs []R, files sys.Files, name string) (_ []R, err error) {
	f, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	in, err := unpacked(f, formatByName(name))
	if err != nil {
		return nil, err
	}
	defer in.free()
	c := codec.JSON[R]()
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return recs, nil
		}
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("its last line has no end: %w", fs.ErrInvalid)
		}
		if err != nil {
			return nil, err
		}
		var rec R
		if err := c.Decode(line[:len(line)-1], &rec); err != nil {
			return nil, err
		}
		recs = append(recs, rec)
	}
}

type lineReader struct {
	*bufio.Reader
	free func()
}

func unpacked(r io.Reader, f format) (lineReader, error) {
	switch f {
	case gz:
		g, err := gzip.NewReader(r)
		if err != nil {
			return lineReader{}, err
		}
		return lineReader{bufio.NewReader(g), func() {}}, nil
	case zst:
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return lineReader{}, err
		}
		return lineReader{bufio.NewReader(d), d.Close}, nil
	}
	return lineReader{bufio.NewReader(r), func() {}}, nil
}
