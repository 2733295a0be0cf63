// Package kafkalab is a laboratory for programs that talk to Kafka: real
// brokers that can be killed and started again ([Start]), a proxy that cuts a
// connection just before or just after a chosen request takes effect
// ([Proxy]), and a reader that shares no code with this module or its Kafka
// client ([Kcat]).
//
// It is for tests, chaos runs and benchmarks. The brokers come from the scripts
// in tools/kafka, so the working directory must lie in the module.
package kafkalab
