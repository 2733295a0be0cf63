// Package kafka reads topics and writes them: exactly once between topics of one
// cluster, because what an epoch wrote, the offsets that it read and the
// checkpoint's id are one transaction there.
//
// [NewCluster] or [Connect] says how a cluster is reached, [Source] and [SourceOf]
// read, [Sink] and [DeadLetters] write. Which file does what is in docs/design.md,
// what operators need to know in docs/kafka.md.
package kafka
