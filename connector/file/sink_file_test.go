package file_test

import (
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/connector/file"
)

// A published file has its epoch, task and checkpoint in its name, and a line
// for each record. Files of empty epochs and silent tasks aren't there.
func TestPublishedFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	r := begin(t, sales(dir), 1)
	r.commit(t) // genesis, as it were
	r.write(t, 0, sale{"tea", 350}, sale{"cake", 400.5})
	r.write(t, 1, sale{"ü\n\"", -1})
	if got := visible(t, dir); len(got) != 0 {
		t.Errorf("before the commit readers see %q", got)
	}
	r.commit(t)
	r.write(t, 1, sale{"tea", 350})
	r.commit(t)
	name := func(epoch int64, task int) string {
		return fmt.Sprintf("sales-%012d-%03d-%s.jsonl", epoch, task, id(epoch))
	}
	want := []string{name(2, 0), name(2, 1), name(3, 1)}
	if diff := cmp.Diff(want, visible(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	for i, want := range []string{
		"{\"item\":\"tea\",\"cents\":350}\n{\"item\":\"cake\",\"cents\":400.5}\n",
		"{\"item\":\"ü\\n\\\"\",\"cents\":-1}\n",
		"{\"item\":\"tea\",\"cents\":350}\n",
	} {
		got, err := os.ReadFile(filepath.Join(dir, visible(t, dir)[i]))
		check(t, err)
		if string(got) != want {
			t.Errorf("file %d holds %q, want %q", i, got, want)
		}
	}
	if got := staged(t, dir); len(got) != 0 {
		t.Errorf("parts that are left in the stage: %q", got)
	}
}

// manySales are more than a buffer holds, and don't compress to nothing.
func manySales() []sale {
	all := make([]sale, 40_000)
	for i := range all {
		all[i] = sale{fmt.Sprintf("%x-%d", i*2654435761, i), float64(i)}
	}
	return all
}

// What the sink writes is read by file.Lines, and by the tools of the formats.
func TestReadableFiles(t *testing.T) {
	all := manySales()
	for ending := range packs(sales("")) {
		t.Run(ending, func(t *testing.T) {
			dir := t.TempDir()
			s := packs(sales(dir))[ending]
			for n := range int64(2) { // the second one's compressors were used before
				r := begin(t, s, n+1)
				for i := 0; i < len(all); i += 1000 {
					r.write(t, 0, all[i:i+1000]...)
				}
				r.commit(t)
				r.write(t, 1, all[:10]...)
				r.commit(t)
			}
			want := slices.Concat(all, all[:10], all, all[:10])
			src := file.Lines(filepath.Join(dir, "*."+ending), codec.JSON[sale]())
			splits, err := src.Splits(t.Context())
			check(t, err)
			var got []sale
			for _, split := range splits {
				recs, _, err := readAll(t, src, split, nil)
				check(t, err)
				got = append(got, recs...)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("(-want +got):\n%.2000s", diff)
			}
			readByTool(t, dir, ending, len(want))
		})
	}
}

func readByTool(t *testing.T, dir, ending string, lines int) {
	t.Helper()
	tool, ok := map[string]string{"jsonl.gz": "gzip", "jsonl.zst": "zstd"}[ending]
	if !ok {
		return
	}
	if _, err := exec.LookPath(tool); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("install it: %v", err)
		}
		t.Skipf("the files were read by file.Lines, but not by the tool: %v", err)
	}
	var out bytes.Buffer
	for _, name := range visible(t, dir) {
		cmd := exec.Command(tool, "-dc", filepath.Join(dir, name))
		cmd.Stdout, cmd.Stderr = &out, os.Stderr
		check(t, cmd.Run())
	}
	if got := bytes.Count(out.Bytes(), []byte("\n")); got != lines {
		t.Errorf("%s finds %d lines, want %d", tool, got, lines)
	}
}

// A part that has reached its size asks for a barrier, until it is sealed.
func TestFullPart(t *testing.T) {
	for ending := range packs(sales("")) {
		dir := t.TempDir()
		r := begin(t, packs(sales(dir).MaxPart(100))[ending], 1)
		full := func() bool { return r.writers[0].(weir.Filler).Full() }
		line := len(`{"item":"tea","cents":350}`) + 1
		for n := line; n < 200; n += line {
			r.write(t, 0, sale{"tea", 350})
			if full() != (n >= 100) {
				t.Errorf("%s: after %d bytes Full is %v, and the limit is 100", ending, n, full())
			}
		}
		if r.writers[1].(weir.Filler).Full() {
			t.Errorf("%s: a task that wrote nothing is full", ending)
		}
		r.commit(t)
		if full() {
			t.Errorf("%s: Full after Seal", ending)
		}
	}
}

// Little of a part is kept in memory: its file grows while it is written.
func TestPartsAreWrittenAsTheyGrow(t *testing.T) {
	dir := t.TempDir()
	r := begin(t, sales(dir), 1)
	r.write(t, 0, manySales()...)
	parts := staged(t, dir)
	if len(parts) != 1 || !strings.HasSuffix(parts[0], ".open") {
		t.Fatalf("while it is written the stage holds %q", parts)
	}
	info, err := os.Stat(filepath.Join(dir, parts[0]))
	check(t, err)
	if info.Size() < 1<<20 {
		t.Errorf("the part has %d bytes, and 1.5 MB were written", info.Size())
	}
	check(t, r.p.Close())
	if got := staged(t, dir); len(got) != 0 {
		t.Errorf("Close leaves %q", got)
	}
}

// indented has line breaks in its JSON, which mean nothing.
type indented struct{ N int }

func (i indented) MarshalJSONTo(e *jsontext.Encoder) error {
	return e.WriteValue(fmt.Appendf(nil, "{\n  \"n\": %d\n}", i.N))
}

func TestEachRecordIsOneLine(t *testing.T) {
	dir := t.TempDir()
	r := begin(t, file.JSONLines[indented](dir), 1)
	r.write(t, 0, indented{1}, indented{2})
	r.commit(t)
	got, err := os.ReadFile(filepath.Join(dir, visible(t, dir)[0]))
	check(t, err)
	if want := "{\"n\":1}\n{\"n\":2}\n"; string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// explosive has a method that panics for some.
type explosive struct{ N int }

func (x explosive) MarshalJSON() ([]byte, error) {
	if x.N < 0 {
		panic("boom")
	}
	return fmt.Appendf(nil, "%d", x.N), nil
}

// What has no JSON is rejected by its index, and the job can go on behind it.
func TestRecordsWithoutJSON(t *testing.T) {
	rejected := func(err error, at int, says ...string) {
		t.Helper()
		wantError(t, err, append(says, `sink "sales"`)...)
		var r weir.Rejection
		if !errors.As(err, &r) || r.Rejected() != at || !errors.Is(err, weir.ErrInput) {
			t.Errorf("got %#v, want a weir.Rejection of record %d that is weir.ErrInput", err, at)
		}
	}
	dir := t.TempDir()
	r := begin(t, sales(dir), 1)
	rejected(r.writers[0].Write([]sale{{"a", 1}, {"b", math.NaN()}, {"c", 3}}, make([]int64, 3)), 1, "NaN")
	rejected(r.writers[0].Write([]sale{{"bad \xff", 1}}, make([]int64, 1)), 0, "UTF-8")
	r.write(t, 0, sale{"c", 3})
	r.commit(t)
	got, err := os.ReadFile(filepath.Join(dir, visible(t, dir)[0]))
	check(t, err)
	if want := "{\"item\":\"a\",\"cents\":1}\n{\"item\":\"c\",\"cents\":3}\n"; string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}

	x := begin(t, file.JSONLines[explosive](t.TempDir()), 1)
	err = x.writers[0].Write([]explosive{{1}, {-1}}, make([]int64, 2))
	rejected(err, 1, "boom")
	if p := (*weir.PanicError)(nil); !errors.As(err, &p) || !strings.Contains(string(p.Stack), "MarshalJSON") {
		t.Errorf("got %#v, want a *weir.PanicError with the stack of MarshalJSON", err)
	}
}

func TestScratch(t *testing.T) {
	tmp := t.TempDir()
	for ending, s := range packs(sales(filepath.Join(tmp, "real"))) {
		scratch, rows, err := s.Scratch(tmp)
		check(t, err)
		if _, err := os.Stat(filepath.Join(tmp, "real")); !os.IsNotExist(err) {
			t.Error("the real folder was made")
		}
		if got, err := rows(t.Context()); err != nil || len(got) != 0 {
			t.Errorf("%s: before anything was written: %v, %v", ending, got, err)
		}
		r := begin(t, scratch, 1)
		r.write(t, 0, sale{"tea", 1}, sale{"cake", 2})
		r.commit(t)
		r.write(t, 1, sale{"bread", 3})
		r.commit(t)
		r.write(t, 1, sale{"never committed", 4})
		got, err := rows(t.Context())
		check(t, err)
		if diff := cmp.Diff([]sale{{"tea", 1}, {"cake", 2}, {"bread", 3}}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", ending, diff)
		}
	}
}
