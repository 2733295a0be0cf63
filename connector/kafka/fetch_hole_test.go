package kafka

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirstream/weir/connector/kafka/kafkatest"
)

// compacted are settings of a topic that may have holes.
var compacted = []string{"cleanup.policy=compact"}

// A broker that sends no records although it has some, as one whose tiered storage
// doesn't answer, is asked until it does, and what is waited for is said.
func TestEmptyAnswersAreNoHole(t *testing.T) {
	for _, tt := range []struct {
		name    string
		configs []string
		denied  bool
		blind   int64
		says    string
	}{
		{"not compacted", nil, false, 10, "isn't compacted"},
		{"compacted, and the last record is there", compacted, false, 9, "has the last one"},
		{"settings that may not be seen", compacted, true, 10, "DescribeConfigs"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newMadeLogWith(t, tt.configs, ofValues(7, 4, 0, 1, 2, 3, 4), ofValues(7, 9, 5, 6, 7, 8, 9))
			if tt.denied {
				l.denySettings()
			}
			l.blind = tt.blind
			r, told := l.open(t, nil)
			var got []string
			late := time.After(kafkatest.Patience)
			for !strings.Contains(told(), tt.says) {
				var err error
				if got, _, err = r.Read(got, 100); err != nil {
					t.Fatal(err)
				}
				select {
				case <-r.Ready():
				case <-late:
					t.Fatalf("read %v, told %q", got, told())
				case <-l.asked:
				}
			}
			if want := fmt.Sprintf("topic %s, partition 0", l.topic); !strings.Contains(told(), want) || !strings.Contains(told(), "from offset 5 on, although offsets go on to 10") {
				t.Errorf("it says %q", told())
			}
			l.change(func() { l.blind = 0 })
			more, err := drain(t, r)
			if got = append(got, more...); err != nil || !slices.Equal(got, []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}) {
				t.Errorf("read %v, error %v", got, err)
			}
		})
	}
}

// denySettings lets nobody see the topic's settings.
func (l *madeLog) denySettings() {
	l.c.ControlKey(int16(kmsg.DescribeConfigs), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		l.c.KeepControl()
		resp := kreq.ResponseKind().(*kmsg.DescribeConfigsResponse)
		for _, r := range kreq.(*kmsg.DescribeConfigsRequest).Resources {
			rr := kmsg.NewDescribeConfigsResponseResource()
			rr.ResourceType, rr.ResourceName, rr.ErrorCode = r.ResourceType, r.ResourceName, kerr.TopicAuthorizationFailed.Code
			resp.Resources = append(resp.Resources, rr)
		}
		return resp, nil, true
	})
}

// Behind a hole another leader isn't asked about the one before it, which holds
// nothing there: that would look as if something had gone.
func TestNewLeaderBehindAHole(t *testing.T) {
	l := newMadeLogWith(t, compacted, ofValues(7, 4, 0, 1, 2, 3, 4))
	l.end, l.stable = 20, 20
	r, _ := l.open(t, nil)
	if got, err := drain(t, r); err != nil || len(got) != 5 {
		t.Fatalf("read %v, error %v", got, err)
	}
	if p, err := parsePosition(r.Position()); err != nil || p.offset != 20 || p.epoch != noEpoch {
		t.Fatalf("it stands at %q, %v", r.Position(), err)
	}
	l.change(func() {
		l.batches = append(l.batches, ofValues(9, 20, 20))
		l.end, l.stable, l.epochs = 21, 21, map[int32]int64{7: 5, 9: 21}
		l.faults = []*kerr.Error{kerr.NotLeaderForPartition}
	})
	if err := l.c.MoveTopicPartition(l.topic, 0, (l.c.LeaderFor(l.topic, 0)+1)%3); err != nil {
		t.Fatal(err)
	}
	again, _ := l.open(t, r.Position())
	for name, r := range map[string]interface {
		Read([]string, int) ([]string, bool, error)
		Ready() <-chan struct{}
	}{"running": r, "started": again} {
		var got []string
		var err error
		for err == nil && len(got) == 0 {
			if got, _, err = r.Read(got, 10); err == nil && len(got) == 0 {
				<-r.Ready()
			}
		}
		if err != nil || !slices.Equal(got, []string{"20"}) {
			t.Errorf("%s: read %v, error %v", name, got, err)
		}
	}
}
