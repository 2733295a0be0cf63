package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/weirstream/weir"
)

// rereadTimeout is how long a message is looked for again.
const rereadTimeout = 10 * time.Second

// Reread returns the value of the message at an offset, and no more than
// weir.MaxRejected bytes of it.
func (s *source[T]) Reread(split string, mark int64) (raw []byte, err error) {
	topic, partition, err := parseSplit(split)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), rereadTimeout)
	defer cancel()
	if raw, err = s.reread(ctx, topic, partition, mark); err != nil {
		return nil, fmt.Errorf("read topic %s, partition %d, offset %d again: %w", topic, partition, mark, err)
	}
	return raw, nil
}

func (s *source[T]) reread(ctx context.Context, topic string, partition int32, at int64) ([]byte, error) {
	feed, release, err := s.acquire(ctx, false)
	if err != nil {
		return nil, err
	}
	defer release()
	var a *ask
	if feed != nil {
		a, err = feed.apart()
	} else if a, err = newAsk(s.c); err == nil {
		defer a.close()
	}
	if err != nil {
		return nil, err
	}
	return a.reread(ctx, topic, partition, at, s.conf.maxBatch)
}

func (a *ask) reread(ctx context.Context, topic string, partition int32, at int64, most int) ([]byte, error) {
	resp, err := a.metadata(ctx, []string{topic})
	if err != nil {
		return nil, err
	}
	rt, rp, err := partitionOf(resp, topic, partition)
	if err != nil {
		return nil, err
	}
	got, err := a.fetchOnce(ctx, rp.Leader, topic, rt.TopicID, partition, at)
	if errors.Is(err, kerr.OffsetOutOfRange) {
		return nil, fmt.Errorf("%w: retention has deleted it", weir.ErrRefused)
	}
	if err != nil {
		return nil, err
	}
	spare := spare{max: most}
	defer spare.close()
	b := batches{topic: topic, partition: partition, spare: &spare}
	b.begin(&parcel{raw: got.RecordBatches}, false)
	m := Message{Topic: topic, Partition: partition}
	for {
		switch ok, err := b.next(&m, nil); {
		case err != nil:
			return nil, err
		case !ok || m.Offset > at:
			return nil, errors.New("it isn't there: it was deleted or compacted away")
		case m.Offset == at:
			return slices.Clone(m.Value[:min(len(m.Value), weir.MaxRejected)]), nil
		}
	}
}
