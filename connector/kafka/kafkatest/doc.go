// Package kafkatest gives a test a Kafka cluster to talk to, and clients to
// look at it with that share nothing with what is tested.
//
// Without further ado the cluster is a kfake one: in this process, set up like
// Kafka 4.4, empty, and gone with the test. With KAFKA_BROKERS in the
// environment, host:port separated by commas, the same test runs on that
// cluster. A test that holds on the first says little about the second: their
// differences are many, and in the corners. The largest of them, markers that
// come after EndTxn's answer, kfake can be taught: see [LateMarkers].
//
//	brokers := kafkatest.Brokers(t)
//	topic := kafkatest.Topic(t, brokers, 4)
//	kafkatest.Produce(t, brokers, &kgo.Record{Topic: topic, Value: []byte("a")})
//	// ... what is tested ...
//	got := kafkatest.ReadCommitted(t, brokers, topic)
//
// Every helper ends the test with a message when it can't do its work, so each
// must be called on the test's own goroutine.
package kafkatest
