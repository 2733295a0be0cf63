package file

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/internal/sys"
)

// ledger is what one run of a job (one uuid) has in a folder: entries, each a
// file of its own that is put once and never changed. Its name is an
// incarnation and a number within it. Number 0 is the incarnation's claim: it
// shuts out every lower one, and is kept for good. The others are states: what
// the sinks' ledgers name. The state of the highest incarnation counts, and of
// that the one with the highest number.
type ledger struct {
	blobs sys.Blobs // of the hidden folder
	files sys.Files // the same, to look without a sync
	dir   string    // of the entries, in the hidden folder
	where string    // the folder, for people
}

// stamp is the name of an entry: INCARNATION-NUMBER, in 19 and 12 digits.
type stamp struct{ inc, n int64 }

// giveUp is the incarnation that claims a run which was given up. None that
// was started can be higher.
const giveUp = 1 << 62

func (s stamp) String() string { return fmt.Sprintf("%019d-%012d", s.inc, s.n) }

func (s stamp) claim() bool { return s.n == 0 }

func (s stamp) compare(o stamp) int { return strings.Compare(s.String(), o.String()) }

func parseStamp(name string) (s stamp, ok bool) {
	inc, n, _ := strings.Cut(name, "-")
	var err [2]error
	s.inc, err[0] = strconv.ParseInt(inc, 10, 64)
	s.n, err[1] = strconv.ParseInt(n, 10, 64)
	return s, err == [2]error{} && s.String() == name
}

// entry is what is in a file of the ledger. A claim has no rows.
type entry struct {
	Job         string    `json:"job"`
	UUID        string    `json:"uuid"`
	Incarnation int64     `json:"incarnation"`
	Nonce       string    `json:"nonce"`
	Rows        []row     `json:"rows,omitempty"`
	At          time.Time `json:"at"` // for people
}

// row is the ledger of one sink. While one process runs a job its worker is 0.
type row struct {
	Sink       string `json:"sink"`
	Worker     int    `json:"worker"`
	Checkpoint string `json:"checkpoint"` // "" before the first
}

// An entry as a file: little-endian, see docs/formats.md.
const (
	entryMagic   = "WEIR-LDG"
	entryVersion = 1
	entryHead    = 16
	maxEntry     = 64 << 20
)

func encodeEntry(e entry) ([]byte, error) {
	payload, err := json.Marshal(e, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encode an entry of the ledger: %w", err)
	}
	b := binary.LittleEndian.AppendUint32([]byte(entryMagic), entryVersion)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	b = append(b, payload...)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...), nil
}

// decodeEntry checks all of it.
func decodeEntry(b []byte) (e entry, err error) {
	body := len(b) - sha256.Size
	if body < entryHead || len(b) > maxEntry || !bytes.HasPrefix(b, []byte(entryMagic)) {
		return e, fmt.Errorf("%w: it isn't an entry of a ledger (%d bytes)", weir.ErrCorrupt, len(b))
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != entryVersion {
		return e, fmt.Errorf("%w: it has version %d, and this version of weir reads %d", weir.ErrRefused, v, entryVersion)
	}
	if sum := sha256.Sum256(b[:body]); !bytes.Equal(sum[:], b[body:]) || int64(binary.LittleEndian.Uint32(b[12:])) != int64(body-entryHead) {
		return e, fmt.Errorf("%w: its checksum doesn't fit its %d bytes", weir.ErrCorrupt, len(b))
	}
	if err := json.Unmarshal(b[entryHead:body], &e, json.RejectUnknownMembers(true)); err != nil {
		return e, fmt.Errorf("%w: %w", weir.ErrCorrupt, err)
	}
	return e, nil
}

// runDir is the folder of a run within the hidden one. Any uuid gives a name.
func runDir(uuid string) string {
	var b strings.Builder
	b.WriteString(runPrefix)
	for _, c := range []byte(uuid) {
		if isAlnum(rune(c)) || c == '-' {
			b.WriteByte(c)
			continue
		}
		fmt.Fprintf(&b, "_%02x", c)
	}
	return b.String()
}

// list returns the names of all entries, sorted. With a sync none that it
// returns can vanish; without one it is cheaper.
func (l *ledger) list(synced bool) ([]stamp, error) {
	var names []string
	var err error
	if synced {
		names, err = l.blobs.List(l.dir + "/")
	} else if names, err = l.files.List(l.dir); errors.Is(err, fs.ErrNotExist) {
		names, err = nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the ledger in %s: %w", l.where, err)
	}
	var all []stamp
	for _, name := range names {
		s, ok := parseStamp(path.Base(name))
		if !ok {
			return nil, fmt.Errorf("%w: %s holds %q, which is no entry of a ledger: take it away, or restore the folder from a backup",
				weir.ErrRefused, l.path(""), path.Base(name))
		}
		all = append(all, s)
	}
	slices.SortFunc(all, stamp.compare)
	return all, nil
}

func (l *ledger) path(name string) string { return path.Join(l.where, hiddenDir, l.dir, name) }

func (l *ledger) read(s stamp) (entry, error) {
	b, err := l.blobs.Get(l.dir + "/" + s.String())
	if err != nil {
		return entry{}, fmt.Errorf("read the ledger in %s: %w", l.where, err)
	}
	e, err := decodeEntry(b)
	if err == nil && (runDir(e.UUID) != path.Dir(l.dir) || e.Incarnation != s.inc) {
		err = fmt.Errorf("%w: it belongs to incarnation %d of run %s", weir.ErrCorrupt, e.Incarnation, e.UUID)
	}
	if err != nil {
		return entry{}, fmt.Errorf("%s: %w: restore the folder from a backup", l.path(s.String()), err)
	}
	return e, nil
}

// put writes an entry, durable on return. fs.ErrExist if there is one of its
// name.
func (l *ledger) put(ctx context.Context, n int64, e entry) error {
	e.At = sys.From(ctx).Clock.Now().UTC().Truncate(time.Second)
	b, err := encodeEntry(e)
	if err != nil {
		return err
	}
	name := l.dir + "/" + stamp{e.Incarnation, n}.String()
	for range 3 {
		err = l.blobs.PutIfAbsent(name, func(w io.Writer) error {
			_, err := w.Write(b)
			return err
		})
		// An older incarnation that hasn't noticed us yet may have cleaned our
		// temporary file away, once in its life.
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("write the ledger in %s: %w", l.where, err)
	}
	return nil
}

// forget removes a state that a durable one has replaced. One that stays harms
// nobody: it is outranked, and the next incarnation removes it.
func (l *ledger) forget(s stamp) {
	if !s.claim() {
		_ = l.files.Remove(l.dir + "/" + s.String())
	}
}

// newest returns the state that counts, and the highest claim.
func newest(all []stamp) (state, claim stamp) {
	for _, s := range all {
		if s.claim() {
			claim = s
		} else {
			state = s
		}
	}
	return state, claim
}
