package file

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strconv"

	"github.com/weirstream/weir"
)

// position is where reading stands in a file: the byte offset of a line in the
// uncompressed data and, of a file that is followed, what tells the file from
// another one. As text it is OFFSET, or OFFSET sha256:SUM.
type position struct {
	off int64
	sum string // 16 hexadecimal digits; "" if there is none
}

// sample is how many bytes at the start of a file, and how many before the
// position, its sum is of: whoever truncates a file and writes it anew, or puts
// another one in its place, changes some of them.
const sample = 256

const sumPrefix = "sha256:"

// parsePosition reads a position. Only what String writes is taken.
func parsePosition(split string, at []byte) (position, error) {
	if at == nil {
		return position{}, nil
	}
	num, sum, _ := bytes.Cut(at, []byte(" "+sumPrefix))
	off, err := strconv.ParseInt(string(num), 10, 64)
	p := position{off, string(sum)}
	if err != nil || off < 0 || p.String() != string(at) || !isSum(p.sum) {
		return position{}, fmt.Errorf("%w: input file %q: position %.40q is not a byte offset; the checkpoint is of another source, or was changed",
			weir.ErrRefused, split, at)
	}
	return p, nil
}

func isSum(s string) bool {
	return s == "" || len(s) == 16 && len(bytes.Trim([]byte(s), "0123456789abcdef")) == 0
}

// String is the form that checkpoints hold.
func (p position) String() string {
	if p.sum == "" {
		return strconv.FormatInt(p.off, 10)
	}
	return strconv.FormatInt(p.off, 10) + " " + sumPrefix + p.sum
}

// sumOf is the sum for a position with head at the start of the file and tail
// before the position.
func sumOf(head, tail []byte) string {
	h := sha256.New()
	h.Write(head)
	h.Write(tail)
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

// verify refuses a file that isn't the one that the position is of.
func (p position) verify(in *input) error {
	if p.sum == "" {
		return nil
	}
	if in.format != plain {
		return fmt.Errorf("%w: input file %q: position %q is of a file that was followed, and this one is %s data: it was replaced since the checkpoint; %s",
			weir.ErrRefused, in.path, p, in.format, putBack)
	}
	if p.off > in.size {
		return outOfRange(in.path, p.off, in.size)
	}
	head, tail, err := samples(in, p.off)
	if err != nil {
		return err
	}
	if got := sumOf(head, tail); got != p.sum {
		return fmt.Errorf("%w: input file %q: up to position %d it isn't the file that was read (its sum is %s, in the checkpoint %s): "+
			"it was replaced, rotated under this name, or truncated and written anew since the checkpoint; %s",
			weir.ErrRefused, in.path, p.off, got, p.sum, putBack)
	}
	return nil
}

// putBack is what to do about a file that isn't what it was.
const putBack = "put it back as it was, or start the job over with --start-over (StartOver)"

// samples reads what the sum at an offset of a plain file is of.
func samples(in *input, off int64) (head, tail []byte, err error) {
	n := min(off, sample)
	head, tail = make([]byte, n), make([]byte, n)
	if n == 0 {
		return head, tail, nil
	}
	_, err = in.f.ReadAt(head, 0)
	if err == nil {
		_, err = in.f.ReadAt(tail, off-n)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("input file %q: %w", in.path, noEOF(err))
	}
	return head, tail, nil
}
