package file_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/connector/file"
)

// write makes a file in a folder of the test's own and returns its path.
func write(t testing.TB, name, data string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// gzipped packs each part into a gzip stream of its own.
func gzipped(t testing.TB, parts ...string) string {
	t.Helper()
	var b bytes.Buffer
	for _, p := range parts {
		w := gzip.NewWriter(&b)
		if _, err := w.Write([]byte(p)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// zstded packs each part into a zstd frame of its own.
func zstded(t testing.TB, opts []zstd.EOption, parts ...string) string {
	t.Helper()
	var b bytes.Buffer
	for _, p := range parts {
		w, err := zstd.NewWriter(&b, append(opts, zstd.WithEncoderConcurrency(1))...)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(p)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// packings are the ways in which the same data can stand in a file.
func packings(t testing.TB, data string) map[string]string {
	half := len(data) / 2
	return map[string]string{
		"plain.jsonl":     data,
		"one.jsonl.gz":    gzipped(t, data),
		"three.jsonl.gz":  gzipped(t, data[:half], "", data[half:]),
		"one.jsonl.zst":   zstded(t, nil, data),
		"two.jsonl.zst":   zstded(t, nil, data[:half], data[half:]),
		"nosum.jsonl.zst": zstded(t, []zstd.EOption{zstd.WithEncoderCRC(false)}, data),
	}
}

// readAll reads a split from a position until it ends or fails.
func readAll[T any](t testing.TB, src weir.Source[T], split string, at []byte) ([]T, weir.Reader[T], error) {
	t.Helper()
	r, err := src.Open(t.Context(), split, at)
	if err != nil {
		return nil, nil, err
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error("Close:", err)
		}
	})
	recs, err := drain(r)
	return recs, r, err
}

// readData reads a file with the given data; path is made for the first of many.
func readData[T any](t testing.TB, path, data string, c codec.Codec[T]) ([]T, error) {
	t.Helper()
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := file.Lines(path, c).Open(t.Context(), path, nil)
	if err != nil {
		return nil, err
	}
	recs, err := drain(r)
	if err := r.Close(); err != nil {
		t.Error("Close:", err)
	}
	return recs, err
}

func drain[T any](r weir.Reader[T]) (recs []T, err error) {
	for end := false; !end && err == nil; {
		recs, end, err = r.Read(recs, 10)
	}
	return recs, err
}

func text(path string, opts ...file.Option) weir.Source[string] {
	return file.Lines(path, codec.String(), opts...)
}

// wantError wants an error that says all of the parts.
func wantError(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want one that says %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q doesn't say %q", err, p)
		}
	}
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
