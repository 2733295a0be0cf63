package file_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/connector/file"
)

// aside opens a split whose bad lines are set aside.
func aside[T any](t testing.TB, src weir.Source[T], path string, at []byte) weir.Reader[T] {
	t.Helper()
	r, err := src.Open(t.Context(), path, at)
	if err != nil {
		t.Fatal(err)
	}
	r.(weir.Rejecter).SetAside()
	return r
}

func TestBadLinesAreSetAside(t *testing.T) {
	big := strings.Repeat("x", 300<<10)
	lines := []struct{ raw, reason string }{
		{`{"id":"a"}`, ""},
		{`oops`, "not valid JSON"},
		{"", "blank"},
		{`{"id":"b"}`, ""},
		{`{"id":"` + strings.Repeat("y", 200) + `"}`, "longer than 100 bytes"},
		{big, "longer than 100 bytes"},
		{`{"n":"x"}`, "JSON string at byte 5"},
		{`{"id":"c"}`, ""},
		{"\xff", "invalid character"},
	}
	for _, end := range []string{"\n", "\r\n"} {
		var texts []string
		var good []click
		want := map[int64]string{} // reason by offset
		raw := map[int64]string{}
		off := 0
		for _, l := range lines {
			texts = append(texts, l.raw)
			switch l.reason {
			case "":
				good = append(good, click{ID: l.raw[7:8]})
			case "blank":
			default:
				want[int64(off)], raw[int64(off)] = l.reason, l.raw
			}
			off += len(l.raw) + len(end)
		}
		for name, packed := range packings(t, strings.Join(texts, end)+end) {
			for _, limit := range []int{1, 2, 100} {
				t.Run(fmt.Sprintf("%q/%s/%d", end, name, limit), func(t *testing.T) {
					path := write(t, name, packed)
					src := file.Lines(path, codec.JSON[click](), file.MaxLine(100))
					r := aside(t, src, path, nil)
					defer shut(t, r)
					var got []click
					seen := 0
					for last := false; !last; {
						recs, end, err := r.Read(nil, limit)
						if err != nil {
							t.Fatal(err)
						}
						got, last = append(got, recs...), end
						bad := r.(weir.Rejecter).Rejected()
						if len(recs)+len(bad) > limit {
							t.Fatalf("Read(max %d) took %d records and %d bad lines", limit, len(recs), len(bad))
						}
						for _, rj := range bad {
							seen++
							if string(rj.Raw) != raw[rj.Mark] || !strings.Contains(rj.Err.Error(), want[rj.Mark]) || want[rj.Mark] == "" {
								t.Errorf("at %d: %.50q, %v", rj.Mark, rj.Raw, rj.Err)
							}
							if long := strings.Contains(want[rj.Mark], "longer"); errors.Is(rj.Err, weir.ErrOversized) != long {
								t.Errorf("at %d: %v", rj.Mark, rj.Err)
							}
							again, err := src.(weir.Rereader).Reread(path, rj.Mark)
							if err != nil || string(again) != raw[rj.Mark] {
								t.Errorf("Reread(%d) = %.50q, %v", rj.Mark, again, err)
							}
						}
					}
					if !slices.Equal(got, good) || seen != len(want) {
						t.Errorf("read %v and %d bad lines, want %v and %d", got, seen, good, len(want))
					}
				})
			}
		}
	}
}

func TestACodecThatPanicsIsSetAside(t *testing.T) {
	path := write(t, "a.jsonl", "one\ntwo\nto\nfor\nno\nfive\n")
	r := aside(t, file.Lines(path, panics{}), path, nil)
	defer shut(t, r)
	got, end, err := r.Read(nil, 100)
	bad := r.(weir.Rejecter).Rejected()
	if !slices.Equal(got, []int{'e', 'o', 'r', 'v'}) || !end || err != nil || len(bad) != 2 || bad[0].Mark != 8 || bad[1].Mark != 15 ||
		string(bad[1].Raw) != "no" || !strings.Contains(bad[0].Err.Error(), "the codec panicked: runtime error: index out of range [2]") {
		t.Errorf("read %v, %v, %v; bad lines %+v", got, end, err, bad)
	}
}

// A line that is far too long is passed over with little memory, and no more of
// it is kept than weir.MaxRejected bytes.
func TestAGiantLineIsPassedOver(t *testing.T) {
	path := write(t, "a.jsonl", "ok\n")
	const giant = 200 << 20
	if err := os.Truncate(path, 3+giant); err != nil {
		t.Fatal(err)
	}
	add(t, path, "\nfine\n")
	for _, follow := range []bool{false, true} {
		var opts []file.Option
		if follow {
			opts = []file.Option{file.Follow()}
		}
		r := aside(t, text(path, opts...), path, nil)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var got []string
		var bad []weir.Rejected
		reads := 0
		for len(got) < 2 {
			recs, _, err := r.Read(nil, 10)
			if err != nil {
				t.Fatal(err)
			}
			if at := string(r.Position()); len(got) == 1 && len(recs) == 0 && !strings.HasPrefix(at, "3") {
				t.Fatalf("in the line it stands at %s", at)
			}
			got = append(got, recs...)
			bad = append(bad, r.(weir.Rejecter).Rejected()...)
			if reads++; len(recs) == 0 && r.Ready() != nil {
				<-r.Ready()
			}
		}
		runtime.ReadMemStats(&after)
		shut(t, r)
		if !slices.Equal(got, []string{"ok", "fine"}) || len(bad) != 1 || bad[0].Mark != 3 || len(bad[0].Raw) != weir.MaxRejected {
			t.Errorf("read %q, and set %d aside", got, len(bad))
		}
		if grew := after.TotalAlloc - before.TotalAlloc; grew > 16<<20 {
			t.Errorf("it took %d bytes of memory", grew)
		}
		if reads < 10 {
			t.Errorf("it was passed over in %d reads: a barrier would have waited", reads)
		}
	}
}

// Of a line that is too long and waits for its end nothing is told yet, and the
// next run passes over it again.
func TestALongLineWaitsForItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := write(t, "a.jsonl", "one\n"+strings.Repeat("x", 100))
		src := text(path, file.Follow(), file.MaxLine(10))
		r := aside(t, src, path, nil)
		for i := range 3 {
			want := []string{"one"}
			if i > 0 {
				want = nil
				<-r.Ready()
			}
			if got := all(t, r, 10); !slices.Equal(got, want) || len(r.(weir.Rejecter).Rejected()) > 0 {
				t.Fatalf("read %q, %+v", got, r.(weir.Rejecter).Rejected())
			}
			at := r.Position()
			if num, _, _ := strings.Cut(string(at), " "); num != "4" {
				t.Fatalf("it stands at %s", at)
			}
			shut(t, r)
			r = aside(t, src, path, at)
			all(t, r, 10)
			add(t, path, strings.Repeat("x", 100))
		}
		add(t, path, "\ntwo\n")
		<-r.Ready()
		got, _, err := r.Read(nil, 10)
		bad := r.(weir.Rejecter).Rejected()
		if !slices.Equal(got, []string{"two"}) || err != nil || len(bad) != 1 || bad[0].Mark != 4 || len(bad[0].Raw) != 400 {
			t.Errorf("read %q, %v, %+v", got, err, bad)
		}
		shut(t, r)
	})
}

func TestReread(t *testing.T) {
	data := "\xef\xbb\xbffirst\r\n\n  third \n" + strings.Repeat("x", weir.MaxRejected+5) + "\nlast"
	for name, packed := range packings(t, data) {
		path := write(t, name, packed)
		src := text(path).(weir.Rereader)
		for mark, want := range map[int64]string{0: "first", 11: "  third ", 20: strings.Repeat("x", weir.MaxRejected), 20 + weir.MaxRejected + 6: "last"} {
			if got, err := src.Reread(path, mark); err != nil || string(got) != want {
				t.Errorf("%s: Reread(%d) = %.20q (%d bytes), %v", name, mark, got, len(got), err)
			}
		}
		for _, mark := range []int64{-1, 3, 10, 5 << 20} {
			if got, err := src.Reread(path, mark); err == nil {
				t.Errorf("%s: Reread(%d) = %.20q", name, mark, got)
			}
		}
	}
	_, err := text("missing.jsonl").(weir.Rereader).Reread("missing.jsonl", 0)
	wantError(t, err, "missing.jsonl", "doesn't exist")
}
