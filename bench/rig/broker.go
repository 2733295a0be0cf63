package rig

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/weirstream/weir/internal/kafkalab"
)

// Missing says what the machine lacks for a broker, or is nil.
func Missing() error { return kafkalab.Missing() }

// Broker is a real broker of one node, which ends with Stop.
type Broker struct {
	lab *kafkalab.Cluster
	dir string
}

// StartBroker starts a broker with a heap of 1 GB, or of what KAFKA_HEAP says.
// What it holds is deleted quickly, so that the outputs of many laps fit on the
// disk.
func StartBroker(ctx context.Context) (b *Broker, err error) {
	if os.Getenv("KAFKA_HEAP") == "" {
		if err := os.Setenv("KAFKA_HEAP", "1g"); err != nil {
			return nil, err
		}
	}
	b = &Broker{}
	if b.dir, err = os.MkdirTemp("", "weir-bench-kafka-"); err != nil {
		return nil, err
	}
	b.lab, err = kafkalab.Start(ctx, kafkalab.Options{Dir: filepath.Join(b.dir, "node"), Settings: []string{"log.segment.delete.delay.ms=1000"}})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(b.dir))
	}
	return b, nil
}

// Brokers are its addresses.
func (b *Broker) Brokers() []string { return b.lab.Brokers() }

// CPU is the CPU time that the broker has used, or 0 where the system doesn't tell.
func (b *Broker) CPU() time.Duration {
	const tick = 10 * time.Millisecond // Linux counts in hundredths, whatever its clock
	pid, err := os.ReadFile(filepath.Join(b.lab.Dir(), "pid"))
	if err != nil {
		return 0
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strings.TrimSpace(string(pid)), "stat"))
	if err != nil {
		return 0
	}
	// The second field is a name in brackets; user and system time are the 14th and 15th.
	_, after, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(after)
	if len(fields) < 13 {
		return 0
	}
	user, errUser := strconv.ParseInt(fields[11], 10, 64)
	system, errSystem := strconv.ParseInt(fields[12], 10, 64)
	if errUser != nil || errSystem != nil {
		return 0
	}
	return time.Duration(user+system) * tick
}

// Stop kills the broker and deletes what it held.
func (b *Broker) Stop() error { return errors.Join(b.lab.Close(), os.RemoveAll(b.dir)) }
