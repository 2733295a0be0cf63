package file_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/connectortest"
	"github.com/weirstream/weir/connector/file"
	"github.com/weirstream/weir/internal/sys"
)

// packs are the ways in which a sink can write its files.
func packs[R any](s file.Sink[R]) map[string]file.Sink[R] {
	return map[string]file.Sink[R]{"jsonl": s, "jsonl.gz": s.Gzip(), "jsonl.zst": s.Zstd()}
}

// conformance is a sink with two targets in one folder, or in one each.
func conformance(ending string, shared bool) connectortest.SinkUnderTest {
	folder := func(dir, target string) string {
		if shared {
			return filepath.Join(dir, "out")
		}
		return filepath.Join(dir, target)
	}
	return connectortest.SinkUnderTest{
		New: func(dir, target string) weir.Sink[connectortest.Row] {
			return packs(file.JSONLines[connectortest.Row](folder(dir, target)).Prefix(target).MaxPart(1))[ending]
		},
		Rows: func(ctx context.Context, dir, target string) ([]connectortest.Row, error) {
			return published[connectortest.Row](ctx, folder(dir, target), target, ending)
		},
		Rejected: []connectortest.Row{{Key: "bad \xff"}},
		NoSQL:    true,
		Files:    ending == "jsonl", // the others make the same calls
	}
}

func TestJSONLinesIsASink(t *testing.T) {
	t.Run("two in a folder", func(t *testing.T) { connectortest.Sink(t, conformance("jsonl", true)) })
	t.Run("gzip", func(t *testing.T) { connectortest.Sink(t, conformance("jsonl.gz", false)) })
	t.Run("zstd", func(t *testing.T) { connectortest.Sink(t, conformance("jsonl.zst", false)) })
}

// fileName is what docs/formats.md says of a published file.
var fileName = regexp.MustCompile(`^(.+)-(\d{12})-(\d{3,})-(\d+-[0-9a-f]{64})\.(jsonl|jsonl\.gz|jsonl\.zst)$`)

// published reads what a reader of the folder sees who minds its rules. A name
// that isn't a file's fails.
func published[R any](ctx context.Context, dir, prefix, ending string) ([]R, error) {
	files, err := sys.From(ctx).Files(dir)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	names, err := files.List(".")
	if err != nil {
		return nil, err
	}
	var recs []R
	for _, name := range names {
		if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
			continue
		}
		m := fileName.FindStringSubmatch(name)
		if m == nil || m[5] != ending {
			return nil, fmt.Errorf("a reader finds %s", name)
		}
		if m[1] != prefix {
			continue
		}
		f, err := files.Open(name)
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(f)
		if err == nil {
			data, err = unpack(data, ending)
		}
		if err != nil {
			return nil, err
		}
		if len(data) == 0 || data[len(data)-1] != '\n' {
			return nil, fmt.Errorf("a reader finds %s, which doesn't end with a line", name)
		}
		for line := range bytes.Lines(data) {
			var r R
			if err := json.Unmarshal(line, &r); err != nil {
				return nil, err
			}
			recs = append(recs, r)
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
	return recs, nil
}

func unpack(data []byte, ending string) ([]byte, error) {
	switch ending {
	case "jsonl.gz":
		r, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, err
		}
		return io.ReadAll(r)
	case "jsonl.zst":
		r, err := zstd.NewReader(bytes.NewReader(data), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		defer r.Close()
		return io.ReadAll(r)
	}
	return data, nil
}
