package kafka

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirstream/weir/connector/kafka/kafkatest"
)

// TestEpochsInOrder: what an epoch writes comes before what the next one writes, in
// each partition, although they have different producers, and a broker takes the
// first one's messages as late as it can. A count that a window emits when it closes
// would otherwise come before the older one that it replaces.
func TestEpochsInOrder(t *testing.T) {
	fake := kafkatest.FakeOnly(t, "a broker's answer is held back")
	s := stage(t, 1)
	l := begin(t, s, s.sink(), 1)

	var mu sync.Mutex
	first := ""                      // the producer that comes first
	overtaken := make(chan struct{}) // the other one has come
	fake.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		p := req.(*kmsg.ProduceRequest)
		if p.TransactionID == nil || !strings.HasPrefix(*p.TransactionID, s.job.Name) {
			return nil, nil, false
		}
		mu.Lock()
		mine := first == "" || first == *p.TransactionID
		if first == "" {
			first = *p.TransactionID
		} else if !mine {
			select {
			case <-overtaken:
			default:
				close(overtaken)
			}
		}
		mu.Unlock()
		if mine {
			fake.SleepControl(func() {
				select {
				case <-overtaken:
				case <-time.After(50 * time.Millisecond): // nobody comes, as it should be
				case <-t.Context().Done():
				}
			})
		}
		return nil, nil, false
	})
	check(t, l.write(message("k", "1"), message("j", "1")))
	check(t, l.w.Seal(1))
	check(t, l.write(message("k", "2")))
	check(t, l.w.Seal(2))
	for epoch := range int64(2) {
		_, err := l.p.Prepare(t.Context(), epoch+1)
		check(t, err)
		check(t, l.commit(t.Context(), epoch+1, nil))
	}
	equal(t, "the messages", s.read(s.topic), "k=1", "j=1", "k=2")
}
