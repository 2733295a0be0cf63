package rig

import (
	"context"
	"errors"
	"os"
	"path/filepath"

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

// Stop kills the broker and deletes what it held.
func (b *Broker) Stop() error { return errors.Join(b.lab.Close(), os.RemoveAll(b.dir)) }
