package file_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirstream/weir"
)

func TestSinkDeclarations(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		sink weir.Sink[sale]
		says []string
	}{
		"no folder":      {sales(""), []string{"empty path"}},
		"NUL":            {sales("a\x00b"), []string{"NUL"}},
		"part size":      {sales(dir).MaxPart(0), []string{"MaxPart(0)"}},
		"no prefix":      {sales(dir).Prefix(""), []string{"prefix", "empty"}},
		"hidden":         {sales(dir).Prefix(".a"), []string{`".a-..."`}},
		"overlooked":     {sales(dir).Prefix("_a"), []string{`"_a-..."`}},
		"another folder": {sales(dir).Prefix("a/b"), []string{`"a/b"`}},
		"long":           {sales(dir).Prefix(strings.Repeat("x", 101)), []string{"101 bytes", "at most 100"}},
	} {
		t.Run(name, func(t *testing.T) {
			wantError(t, c.sink.(interface{ Check() error }).Check(), c.says...)
			_, err := c.sink.Connect(t.Context(), []string{"sales"})
			wantError(t, err, c.says...)
			wantError(t, errors.New(c.sink.Spec().Target), c.says...)
		})
	}
	file := write(t, "a file", "")
	if _, err := sales(file).Connect(t.Context(), nil); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("the folder is a file: %v", err)
	}
}

// Two spellings of a folder are one participant.
func TestSpellings(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	check(t, os.Symlink(dir, link))
	want := sales(filepath.Join(dir, "sub", "out")).Spec().Participant
	for _, spelling := range []string{filepath.Join(dir, "x", "..", "sub", "out") + "/", filepath.Join(link, "sub", "out")} {
		if got := sales(spelling).Spec().Participant; got != want {
			t.Errorf("%s is %s, want %s", spelling, got, want)
		}
	}
}

// Sinks of one folder are told apart by their names.
func TestPrefixesOfOneFolder(t *testing.T) {
	dir := t.TempDir()
	p, err := sales(dir).Connect(t.Context(), []string{"a", "b", "_c"})
	check(t, err)
	defer func() { check(t, p.Close()) }()
	_, err = sales(dir).Open(t.Context(), p, "a")
	check(t, err)
	_, err = sales(dir).Prefix("a").Open(t.Context(), p, "b")
	wantError(t, err, `sink "b"`, `sink "a"`, "another prefix")
	if !errors.Is(err, weir.ErrDeclaration) {
		t.Errorf("got %v, want weir.ErrDeclaration", err)
	}
	_, err = sales(dir).Open(t.Context(), p, "_c")
	wantError(t, err, `sink "_c"`, "begins with a letter or a digit")
	_, err = sales(dir).Open(t.Context(), p, "a")
	wantError(t, err, "opened twice")
	_, err = sales(dir).Open(t.Context(), p, "d")
	wantError(t, err, "[_c a b] only")
	_, err = sales(t.TempDir()).Open(t.Context(), p, "a")
	wantError(t, err, "isn't file:")
}

// A folder belongs to one job, and to one run of it.
func TestFolderOfAnother(t *testing.T) {
	dir := t.TempDir()
	r := begin(t, sales(dir), 1)
	r.write(t, 0, sale{"tea", 1})
	r.commit(t)
	c, err := r.prepare(t.Context())
	check(t, err)
	claim := func(name, uuid string, startOver bool) error {
		f := weir.Fence{Job: weir.JobID{Name: name, UUID: uuid}, By: weir.Incarnation{Number: 1, Nonce: uuid}, Create: true, StartOver: startOver}
		r, err := tryBegin(t.Context(), sales(dir), f, "sales")
		if err == nil {
			err = r.p.Close()
		}
		return err
	}
	before := under(t, dir)
	for _, startOver := range []bool{false, true} {
		err := claim("other", "u2", startOver)
		wantError(t, err, dir, `job "job"`, "run u1", "another folder", filepath.Join(dir, ".weir", "run-u1"))
		if !errors.Is(err, weir.ErrRefused) {
			t.Errorf("got %v, want weir.ErrRefused", err)
		}
	}
	wantError(t, claim("job", "u3", false), dir, `run of the job "job" (run u1)`, "--start-over")
	if diff := cmp.Diff(before, under(t, dir)); diff != "" {
		t.Errorf("a refused start has changed the folder (-before +after):\n%s", diff)
	}
	check(t, claim("job", "u4", true))
	if err := r.p.Commit(t.Context(), c); !errors.Is(err, weir.ErrFenced) || !strings.Contains(err.Error(), "given up") {
		t.Errorf("the run that was given up: %v, want weir.ErrFenced", err)
	}
	f := fenceOf(2)
	_, err = tryBegin(t.Context(), sales(dir), f, "sales")
	wantError(t, err, "given up")
	wantError(t, claim("other", "u5", false), "run u4")
}

// Who claims a number that the ledger has from another start has another log.
func TestFolderKnowsACopyOfTheLog(t *testing.T) {
	dir := t.TempDir()
	begin(t, sales(dir), 5-4)
	begin(t, sales(dir), 5)
	for number, want := range map[int64]error{5: weir.ErrRefused, 4: weir.ErrFenced} {
		f := fenceOf(number)
		f.By.Nonce = "copy"
		_, err := tryBegin(t.Context(), sales(dir), f, "sales")
		if !errors.Is(err, want) || !strings.Contains(err.Error(), "this state directory is a copy or comes from a backup") {
			t.Errorf("number %d: got %v, want %v", number, err, want)
		}
	}
}

// crashed is a folder with an epoch that is prepared and not committed.
func crashed(t *testing.T) (dir string, c weir.Commit) {
	t.Helper()
	dir = t.TempDir()
	r := begin(t, sales(dir), 1)
	r.write(t, 0, sale{"tea", 1})
	r.commit(t)
	r.write(t, 0, sale{"cake", 2})
	c, err := r.prepare(t.Context())
	check(t, err)
	return dir, c
}

// A part that isn't what was written is never published, and one that is gone
// is never passed over.
func TestDamagedParts(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(part string) error
		want   error
		says   string
	}{
		"shorter": {func(part string) error { return os.Truncate(part, 5) }, weir.ErrCorrupt, "it has 5 bytes"},
		"changed": {func(part string) error { return os.WriteFile(part, []byte("{\"item\":\"Cake\",\"cents\":2}\n"), 0o600) }, weir.ErrCorrupt, "checksum"},
		"gone":    {os.Remove, weir.ErrRefused, "put an empty file of that name in its place"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, commit := crashed(t)
			check(t, c.damage(filepath.Join(dir, staged(t, dir)[0])))
			r := begin(t, sales(dir), 2)
			err := r.p.Commit(t.Context(), commit)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("got %v, want %v that says %q", err, c.want, c.says)
			}
			if got := visible(t, dir); len(got) != 1 {
				t.Errorf("readers see %q", got)
			}
		})
	}
}

// A file that a reader has taken away too early can be stood in for.
func TestFileTakenAwayTooEarly(t *testing.T) {
	dir, commit := crashed(t)
	check(t, os.Remove(filepath.Join(dir, staged(t, dir)[0])))
	name := fmt.Sprintf("sales-%012d-000-%s.jsonl", commit.Epoch, commit.ID)
	check(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	r := begin(t, sales(dir), 2)
	check(t, r.p.Commit(t.Context(), commit))
}

// What was kept with a checkpoint is read whole or not at all.
func TestDamagedList(t *testing.T) {
	dir, commit := crashed(t)
	good := commit.Staged
	bad := map[string][]byte{"version": append([]byte{9}, good[1:]...), "more": append(good[:len(good):len(good)], 0), "none": nil}
	for n := range good {
		bad[fmt.Sprint("cut at ", n)] = good[:n]
	}
	n := int64(2)
	for name, b := range bad {
		r := begin(t, sales(dir), n)
		n++
		commit.Staged = b
		if err := r.p.Commit(t.Context(), commit); !errors.Is(err, weir.ErrCorrupt) && !errors.Is(err, weir.ErrRefused) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	r := begin(t, sales(dir), n)
	commit.Staged = good
	check(t, r.p.Commit(t.Context(), commit))
}

// entries are the files of the ledger.
func entries(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	for _, name := range under(t, filepath.Join(dir, ".weir", "run-u1", "ledger")) {
		names = append(names, filepath.Join(dir, ".weir", "run-u1", "ledger", name))
	}
	return names
}

// An entry of the ledger is what docs/formats.md says.
func TestLedgerEntry(t *testing.T) {
	dir := t.TempDir()
	r := begin(t, sales(dir), 1)
	r.commit(t)
	names := entries(t, dir)
	if len(names) != 2 || filepath.Base(names[0]) != "0000000000000000001-000000000000" || filepath.Base(names[1]) != "0000000000000000001-000000000002" {
		t.Fatalf("the ledger holds %q", names)
	}
	b, err := os.ReadFile(names[1])
	check(t, err)
	n := int(binary.LittleEndian.Uint32(b[12:]))
	if string(b[:8]) != "WEIR-LDG" || binary.LittleEndian.Uint32(b[8:]) != 1 || len(b) != 16+n+32 || sha256.Sum256(b[:16+n]) != [32]byte(b[16+n:]) {
		t.Fatalf("the entry is %q", b)
	}
	var e map[string]any
	check(t, json.Unmarshal(b[16:16+n], &e))
	delete(e, "at")
	want := map[string]any{"job": "job", "uuid": "u1", "incarnation": 1.0, "nonce": "nonce",
		"rows": []any{map[string]any{"sink": "sales", "worker": 0.0, "checkpoint": id(1).String()}}}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Errorf("the entry says (-want +got):\n%s", diff)
	}
}

// A ledger that was changed is refused, wherever it was.
func TestDamagedLedger(t *testing.T) {
	dir := t.TempDir()
	begin(t, sales(dir), 1).commit(t)
	state := entries(t, dir)[1]
	good, err := os.ReadFile(state)
	check(t, err)
	for at := range good {
		b := append([]byte(nil), good...)
		b[at] ^= 0x40
		check(t, os.WriteFile(state, b, 0o600))
		_, err := tryBegin(t.Context(), sales(dir), fenceOf(2), "sales")
		if !errors.Is(err, weir.ErrCorrupt) && !errors.Is(err, weir.ErrRefused) || !strings.Contains(err.Error(), filepath.Base(state)) {
			t.Fatalf("byte %d: got %v", at, err)
		}
	}
	check(t, os.WriteFile(state, good, 0o600))
	check(t, os.WriteFile(filepath.Join(filepath.Dir(state), "notes"), nil, 0o600))
	_, err = tryBegin(t.Context(), sales(dir), fenceOf(2), "sales")
	wantError(t, err, `"notes"`, "take it away")
}

// What earlier incarnations have left goes when it is sure that nobody needs
// it, and not before.
func TestLeftoversGo(t *testing.T) {
	dir, commit := crashed(t)
	old := begin(t, sales(dir), 2)
	check(t, old.p.Commit(t.Context(), commit))
	old.parent, old.epoch = commit.ID, commit.Epoch
	old.write(t, 0, sale{"abandoned", 3})
	abandoned, err := old.prepare(t.Context())
	check(t, err)
	check(t, os.WriteFile(filepath.Join(dir, ".weir", "tmp", "killed-1"), []byte("half"), 0o600))

	r := begin(t, sales(dir), 3)
	if got := staged(t, dir); len(got) != 1 {
		t.Errorf("after Fence, when the epoch may yet be committed, the stage holds %q", got)
	}
	_ = abandoned
	r.write(t, 0, sale{"abandoned", 3})
	r.commit(t)
	want := []string{".weir/run-u1/ledger/0000000000000000001-000000000000", ".weir/run-u1/ledger/0000000000000000002-000000000000",
		".weir/run-u1/ledger/0000000000000000003-000000000000", ".weir/run-u1/ledger/0000000000000000003-000000000002"}
	got := under(t, dir)
	if diff := cmp.Diff(want, got[:len(got)-len(visible(t, dir))]); diff != "" {
		t.Errorf("the hidden folder (-want +got):\n%s", diff)
	}
	if got := visible(t, dir); len(got) != 3 {
		t.Errorf("readers see %q", got)
	}
}
