package kafka

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if spec := os.Getenv(hangEnv); spec != "" {
		beHangWorker(spec)
	}
	goleak.VerifyTestMain(m)
}
