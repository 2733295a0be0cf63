package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/codec"
)

// DefaultMaxPart is how long a part gets unless MaxPart says otherwise:
// 128 MiB before compression.
const DefaultMaxPart = 128 << 20

// Sink writes records as JSON lines into files of one folder; its methods
// return changed copies. JSONLines makes one.
type Sink[R any] struct {
	dir    string // absolute, links resolved
	prefix string // "": the sink's id
	part   partConfig
	err    error
}

// partConfig is how a task writes a part.
type partConfig struct {
	format format
	max    int64 // uncompressed bytes that ask for an early barrier
}

// JSONLines writes each record as one line of JSON into files of the folder
// dir, by the rules of encoding/json/v2 and with maps in the order of their
// keys. The folder is made when missing.
//
// Each task writes at most one file for each epoch, and none where it has
// nothing to say. It appears whole, by a rename, once the epoch's checkpoint is
// committed, under a name with the checkpoint's id in it:
//
//	PREFIX-EPOCH-TASK-CHECKPOINT.jsonl
//
// Sorted by name, the files are in the order of the epochs. A file never
// changes once it is there. Readers ignore names that begin with . or _: in
// .weir the sink keeps what isn't committed yet, and the ledger that says
// which checkpoint is. A reader that moves or deletes files leaves those of
// the newest epoch where they are, and .weir always.
//
// Sinks in one folder commit together. They are told apart by their prefixes.
// A folder belongs to one job: another one is refused.
//
// A record that can't be written as JSON, such as a float that is not a number
// or a text that isn't valid UTF-8, is rejected and named. Mistakes in the
// arguments are reported by Check, before anything runs.
func JSONLines[R any](dir string) Sink[R] {
	s := Sink[R]{part: partConfig{format: plain, max: DefaultMaxPart}}
	s.dir, s.err = resolveFolder(dir)
	return s
}

// Gzip compresses the files with gzip; their names then end in .jsonl.gz.
func (s Sink[R]) Gzip() Sink[R] {
	s.part.format = gz
	return s
}

// Zstd compresses the files with Zstandard; their names then end in .jsonl.zst.
func (s Sink[R]) Zstd() Sink[R] {
	s.part.format = zst
	return s
}

// MaxPart sets how many bytes before compression a part may have: one that has
// reached it makes the job take an early checkpoint. A part gets a little
// longer than that, by what is still on its way. The default is
// [DefaultMaxPart].
func (s Sink[R]) MaxPart(bytes int64) Sink[R] {
	if bytes < 1 {
		s.err = errors.Join(s.err, fmt.Errorf("file.JSONLines: MaxPart(%d): give a number of bytes from 1", bytes))
	}
	s.part.max = bytes
	return s
}

// Prefix sets what the names of the sink's files begin with, at most 100
// letters, digits, '-', '_' and '.', of which the first is a letter or a digit.
// The default is the sink's id in the job.
func (s Sink[R]) Prefix(prefix string) Sink[R] {
	s.err = errors.Join(s.err, checkPrefix(prefix))
	s.prefix = prefix
	return s
}

func checkPrefix(prefix string) error {
	bad := func(r rune) bool { return !isAlnum(r) && r != '-' && r != '_' && r != '.' }
	switch {
	case prefix == "":
		return errors.New("file.JSONLines: the prefix of the files is empty: give one of letters, digits, '-', '_' and '.'")
	case len(prefix) > 100:
		return fmt.Errorf("file.JSONLines: the prefix %.20q... has %d bytes: give at most 100", prefix, len(prefix))
	case !isAlnum(rune(prefix[0])):
		return fmt.Errorf("file.JSONLines: files called %q would be overlooked by readers or are hard to name: "+
			"give a prefix that begins with a letter or a digit, by Prefix", prefix+"-...")
	case strings.ContainsFunc(prefix, bad):
		return fmt.Errorf("file.JSONLines: the prefix %q has characters other than letters, digits, '-', '_' and '.'", prefix)
	}
	return nil
}

func isAlnum(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
}

// resolveFolder makes one spelling of all spellings of a folder: absolute, with
// links resolved as far as the path exists. It reads links and changes nothing.
func resolveFolder(dir string) (string, error) {
	if dir == "" {
		return "", errors.New("file.JSONLines needs a folder, and was given an empty path")
	}
	if strings.ContainsRune(dir, 0) {
		return "", fmt.Errorf("file.JSONLines: the path %q holds a NUL byte", dir)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("file.JSONLines: make %q absolute: %w", dir, err)
	}
	for at, rest := abs, ""; ; at, rest = filepath.Dir(at), filepath.Join(filepath.Base(at), rest) {
		full, err := filepath.EvalSymlinks(at)
		if err == nil {
			return filepath.Join(full, rest), nil
		}
		if !errors.Is(err, os.ErrNotExist) || at == filepath.Dir(at) {
			return abs, nil // Connect will say what is wrong with it
		}
	}
}

// Check reports what is wrong with the declaration, or nil. It does no I/O.
func (s Sink[R]) Check() error { return s.err }

// Spec describes the sink.
func (s Sink[R]) Spec() weir.SinkSpec {
	if s.err != nil {
		return weir.SinkSpec{Kind: weir.Following, Target: "files: " + s.err.Error()}
	}
	packed := ""
	if s.part.format != plain {
		packed = fmt.Sprintf(" (%s)", s.part.format)
	}
	return weir.SinkSpec{
		Kind:        weir.Following,
		Target:      fmt.Sprintf("files of JSON lines%s in %s", packed, filepath.Base(s.dir)+string(filepath.Separator)),
		Participant: s.name(),
		Appends:     true,
		Readers:     "an epoch's files appear whole and once, one after the other, each by a rename and with the checkpoint's id in its name",
		Needs: []string{
			"readers ignore names that begin with . or _",
			"a file system whose link and rename are atomic and whose syncs of files and folders are honest",
			"the folder " + hiddenDir + " stays beside the files, and those of the newest epoch stay where they are",
		},
	}
}

// name is the participant: the folder.
func (s Sink[R]) name() string { return "file:" + s.dir }

// Connect opens the folder, which is made if need be. Nothing is written in it
// before Fence.
func (s Sink[R]) Connect(ctx context.Context, sinks []string) (weir.Participant, error) {
	if s.err != nil {
		return nil, s.err
	}
	return connect(ctx, s.dir, s.name(), sinks)
}

// Open attaches the sink to its participant.
func (s Sink[R]) Open(_ context.Context, p weir.Participant, sink string) (weir.Outlet[R], error) {
	if s.err != nil {
		return nil, s.err
	}
	part, ok := p.(*participant)
	if !ok || part.name != s.name() {
		return nil, fmt.Errorf("file: sink %q: opened on a participant that isn't %s", sink, s.name())
	}
	t := &target{sink: sink, prefix: s.prefix, config: s.part, p: part}
	if t.prefix == "" {
		t.prefix = sink
	}
	if err := checkPrefix(t.prefix); err != nil {
		return nil, fmt.Errorf("sink %q: %w", sink, err)
	}
	if err := part.attach(t); err != nil {
		return nil, fmt.Errorf("file: sink %q: %w", sink, err)
	}
	return outlet[R]{t, codec.JSON[R]()}, nil
}

// Scratch returns the sink on a new folder of its own in dir.
func (s Sink[R]) Scratch(dir string) (weir.Sink[R], func(context.Context) ([]R, error), error) {
	if s.err != nil {
		return nil, nil, s.err
	}
	own, err := os.MkdirTemp(dir, filepath.Base(s.dir)+"-")
	if err != nil {
		return nil, nil, fmt.Errorf("file: make a scratch folder: %w", err)
	}
	if s.dir, err = resolveFolder(own); err != nil {
		return nil, nil, err
	}
	return s, func(ctx context.Context) ([]R, error) { return readRows[R](ctx, s.dir) }, nil
}
