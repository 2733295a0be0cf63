package file_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/connector/file"
)

// length is a codec that costs nothing: a record is how long its line was.
type length struct{}

func (length) Decode(b []byte, v *int) error             { *v = len(b); return nil }
func (length) Encode(dst []byte, v *int) ([]byte, error) { return dst, nil }

const clickLine = `{"click_id":"cc2e2ac0090ab2e","ad_id":"ad-77","user_id":"u0946","ts":"2026-03-01T11:59:46.200Z"}` + "\n"

func TestReadDoesNotAllocate(t *testing.T) {
	data := strings.Repeat(clickLine, 100_000)
	path := write(t, "a.jsonl", data)
	r, err := file.Lines(path, length{}).Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	batch, end := make([]int, 0, 256), false
	n := testing.AllocsPerRun(300, func() { // 301 batches of 390; many a refill of the buffer
		batch, end, err = r.Read(batch[:0], 256)
	})
	if n > 0 || err != nil || end || len(batch) != 256 {
		t.Errorf("%v allocations a batch; %d records, end %v, %v", n, len(batch), end, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func TestCloseMayBeRepeated(t *testing.T) {
	for name, packed := range packings(t, "one\ntwo\n") {
		path := write(t, name, packed)
		r, err := text(path).Open(t.Context(), path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.Read(nil, 1); err != nil {
			t.Error(err)
		}
		for range 2 {
			if err := r.Close(); err != nil {
				t.Errorf("%s: Close: %v", name, err)
			}
		}
	}
}

func TestStatusOfFiles(t *testing.T) {
	data := strings.Repeat("0123456789\n", 1000)
	for name, packed := range packings(t, data) {
		path := write(t, name, packed)
		r, err := text(path).Open(t.Context(), path, nil)
		if err != nil {
			t.Fatal(err)
		}
		status := r.(weir.StatusReader).Status
		if st := status(); st.Total != int64(len(packed)) || st.Lag != -1 || st.Idle {
			t.Errorf("%s: at the start %+v", name, st)
		}
		if _, _, err := r.Read(nil, 10); err != nil {
			t.Fatal(err)
		}
		if st := status(); name == "plain.jsonl" && st.Done != 110 {
			t.Errorf("%s: Done is %d after 10 lines of 11 bytes", name, st.Done)
		}
		if _, err := drain(r); err != nil {
			t.Fatal(err)
		}
		if st := status(); st.Done != int64(len(packed)) || st.Total != st.Done {
			t.Errorf("%s: at the end %+v, want %d of as many", name, st, len(packed))
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

func benchmarkRead[T any](b *testing.B, name string, c codec.Codec[T]) {
	const lines = 200_000
	data := strings.Repeat(clickLine, lines)
	path := write(b, name, map[string]func() string{
		"a.jsonl":     func() string { return data },
		"a.jsonl.gz":  func() string { return gzipped(b, data) },
		"a.jsonl.zst": func() string { return zstded(b, nil, data) },
	}[name]())
	src := file.Lines(path, c)
	batch := make([]T, 0, 256)
	b.ReportAllocs()
	b.SetBytes(int64(len(data)))
	n := 0
	for b.Loop() {
		r, err := src.Open(b.Context(), path, nil)
		if err != nil {
			b.Fatal(err)
		}
		for end := false; !end; {
			if batch, end, err = r.Read(batch[:0], 256); err != nil {
				b.Fatal(err)
			}
			n += len(batch)
		}
		if err := r.Close(); err != nil {
			b.Fatal(err)
		}
	}
	if n != b.N*lines {
		b.Fatal(fmt.Errorf("read %d lines, want %d", n, b.N*lines))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/line")
}

func BenchmarkPlain(b *testing.B) { benchmarkRead(b, "a.jsonl", length{}) }
func BenchmarkGzip(b *testing.B)  { benchmarkRead(b, "a.jsonl.gz", length{}) }
func BenchmarkZstd(b *testing.B)  { benchmarkRead(b, "a.jsonl.zst", length{}) }

func BenchmarkJSON(b *testing.B) {
	type event struct {
		ID   string    `json:"click_id"`
		Ad   string    `json:"ad_id"`
		User string    `json:"user_id"`
		At   time.Time `json:"ts"`
	}
	benchmarkRead(b, "a.jsonl", codec.JSON[event]())
}
