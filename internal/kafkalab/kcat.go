package kafkalab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Record is one record as kcat read it.
type Record struct {
	Topic     string
	Partition int32
	Offset    int64
	Time      int64  // milliseconds since 1970, -1 for none
	Key       []byte // nil for null, as against empty
	Value     []byte // nil for a tombstone
	Headers   []Header
}

// A Header is one of a record's, in its order; names may repeat.
type Header struct {
	Name  string
	Value []byte // nil for null
}

// Kcat reads topics by the program of that name, which is built on librdkafka
// and shares no code with this module or with franz-go. It reads committed
// records alone, unless Uncommitted.
type Kcat struct {
	Brokers     []string
	Uncommitted bool
	Settings    []string // further ones of librdkafka, as "key=value"
}

// Read calls f for every record of the topic up to its end as of now: the last
// stable offset, or the log's if Uncommitted. Records of a partition come in
// order. The record is f's to keep; an error of f ends the reading and is
// returned. ends has the offset at which each partition ended.
//
// It does some 500,000 records a second. While a broker is away kcat waits, so
// give ctx a limit.
func (k Kcat) Read(ctx context.Context, topic string, f func(*Record) error) (ends map[int32]int64, err error) {
	ends = map[int32]int64{}
	err = k.consume(ctx, []string{"-t", topic, "-o", "beginning", "-e"}, f, func(line string) {
		if partition, offset, ok := endOf(line); ok {
			ends[partition] = offset
		}
	})
	if err == nil && len(ends) == 0 {
		err = fmt.Errorf("kcat read topic %s, but of no partition to its end", topic)
	}
	return ends, err
}

// All returns what [Kcat.Read] reads.
func (k Kcat) All(ctx context.Context, topic string) ([]Record, error) {
	var all []Record
	_, err := k.Read(ctx, topic, func(r *Record) error {
		all = append(all, *r)
		return nil
	})
	return all, err
}

// Follow calls f for every record of the topic that comes from the call on,
// until ctx ends, which is no error, or f returns one. It calls ready once it
// knows where every partition ends: what is committed after that isn't missed.
// What it reads it has at once.
func (k Kcat) Follow(ctx context.Context, topic string, partitions int, ready func(), f func(*Record) error) error {
	ended := map[int32]bool{}
	err := k.consume(ctx, []string{"-t", topic, "-o", "end", "-u"}, f, func(line string) {
		partition, _, ok := endOf(line)
		if !ok || len(ended) == partitions {
			return
		}
		if ended[partition] = true; len(ended) == partitions {
			ready()
		}
	})
	if errors.Is(err, context.Cause(ctx)) && ctx.Err() != nil {
		err = nil // as promised
	}
	return err
}

// consume runs kcat, and hands on its records and what it says.
func (k Kcat) consume(ctx context.Context, args []string, f func(*Record) error, said func(line string)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	level := "read_committed"
	if k.Uncommitted {
		level = "read_uncommitted"
	}
	args = append([]string{"-C", "-b", strings.Join(k.Brokers, ","), "-J", "-m", "30",
		"-X", "isolation.level=" + level, "-X", "fetch.wait.max.ms=20",
		"-X", "fetch.error.backoff.ms=20", "-X", "check.crcs=true"}, args...)
	for _, s := range k.Settings {
		args = append(args, "-X", s)
	}
	cmd := exec.CommandContext(ctx, "kcat", args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("kcat (Debian: apt-get install kcat): %w", err)
	}
	var last tail
	var talk sync.WaitGroup
	talk.Go(func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			last.add(lines.Text())
			said(lines.Text())
		}
		_, _ = io.Copy(io.Discard, stderr) // a line too long for the scanner must not stop kcat
	})
	failed := records(out, f)
	if failed != nil {
		cancel() // kcat would wait for its output to be read
	}
	talk.Wait()
	err = cmd.Wait()
	switch {
	case failed != nil && !errors.Is(failed, errBreaksOff):
		return failed
	case err != nil: // which is also why its output broke off
		return fmt.Errorf("kcat %s: %w: %s", strings.Join(args, " "), errors.Join(err, context.Cause(ctx)), last.text())
	}
	return failed
}

var errBreaksOff = errors.New("kcat's output breaks off within a record")

// records reads one record a line.
func records(out io.Reader, f func(*Record) error) error {
	in := bufio.NewReaderSize(out, 1<<20)
	var long []byte
	for {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			long = append(long, line...)
			continue
		}
		if errors.Is(err, io.EOF) && len(line)+len(long) == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w, after %d bytes of it: %w", errBreaksOff, len(line)+len(long), err)
		}
		if len(long) > 0 {
			line = append(long, line...)
			long = long[:0]
		}
		r, err := parseRecord(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil {
			return fmt.Errorf("kcat printed %.200q: %w", line, err)
		}
		if err := f(r); err != nil {
			return err
		}
	}
}

// endOf reads "% Reached end of topic T [P] at offset N".
func endOf(line string) (partition int32, offset int64, ok bool) {
	line, ok = strings.CutPrefix(line, "% Reached end of topic ")
	if !ok {
		return 0, 0, false
	}
	_, line, _ = strings.Cut(line, " [")
	p, line, _ := strings.Cut(line, "] at offset ")
	n, _, _ := strings.Cut(line, ":") // the last one says ": exiting"
	number, err := strconv.ParseInt(p, 10, 32)
	if err != nil {
		return 0, 0, false
	}
	offset, err = strconv.ParseInt(strings.TrimSpace(n), 10, 64)
	return int32(number), offset, err == nil
}

// A tail keeps the last lines that a program said.
type tail []string

func (t *tail) add(line string) {
	if *t = append(*t, line); len(*t) > 20 {
		*t = (*t)[1:]
	}
}

func (t *tail) text() string { return strings.Join(*t, "; ") }

// Timestamp returns the record's time, zero for none.
func (r *Record) Timestamp() time.Time {
	if r.Time < 0 {
		return time.Time{}
	}
	return time.UnixMilli(r.Time)
}
