package kafka

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/waybill-go/waybill/framework/store"
)

// topicID is what a cluster gives a topic when it is made. One that is deleted and made again has
// another.
type topicID [16]byte

// String is how Kafka's own tools write it.
func (id topicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

func parseTopicID(text string) (id topicID, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil && len(raw) != len(id) {
		err = fmt.Errorf("topic id %q has %d bytes", text, len(raw))
	}
	copy(id[:], raw)
	return id, err
}

// partition is one of a topic, whatever topic later has that topic's name.
type partition struct {
	topic  topicID
	number int32
}

// position is the place before an offset of a partition.
type position struct {
	partition
	cluster, name string // of the topic
	next          int64
	epoch         int32 // leader epoch of the record before; -1: not known
}

// storedPosition is what stands in the column position of the cursors.
type storedPosition struct {
	Cluster   string `json:"cluster"`
	Topic     string `json:"topic"`
	TopicID   string `json:"topic_id"`
	Partition *int32 `json:"partition"`
	Next      *int64 `json:"next"`
	Epoch     *int32 `json:"leader_epoch"`
}

// MarshalJSON writes the form that parsePosition reads.
func (p position) MarshalJSON() ([]byte, error) {
	return json.Marshal(storedPosition{
		Cluster: p.cluster, Topic: p.name, TopicID: p.topic.String(), Partition: &p.number, Next: &p.next, Epoch: &p.epoch,
	})
}

// parsePosition is strict, so that what a database's own log has written is not taken for one of
// a topic.
func parsePosition(raw json.RawMessage) (p position, err error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	var s storedPosition
	if err = decoder.Decode(&s); err == nil {
		p.topic, err = parseTopicID(s.TopicID)
	}
	if err == nil && (s.Partition == nil || s.Next == nil || s.Epoch == nil || *s.Partition < 0 || *s.Next < 0 || s.Topic == "" || decoder.More()) {
		err = fmt.Errorf("it is incomplete")
	}
	if err != nil {
		return p, fmt.Errorf("%w: it is none of a Kafka topic: %.100q: %w", store.ErrPosition, raw, err)
	}
	p.cluster, p.name, p.number, p.next, p.epoch = s.Cluster, s.Topic, *s.Partition, *s.Next, *s.Epoch
	return p, nil
}

// String is how people write it: orders/3@1042.
func (p position) String() string { return recordName(p.name, p.number, p.next) }

func recordName(topic string, partition int32, offset int64) string {
	return fmt.Sprintf("%s/%d@%d", topic, partition, offset)
}

// perLane is how many offsets of the engine each lane has. Kafka's begin at 0 in every partition;
// the engine's are above 0, and two deliveries of a sink differ by them. So those of lane 2
// begin at 3000000000000, and all are exact as floating-point numbers. A partition of more
// records than that runs on into the numbers of the next lane, where what is parked differs by
// its slot and its id.
const perLane = 1_000_000_000_000

// engineOffset is an offset of a lane's partition as the engine has it.
func engineOffset(lane int, offset int64) int64 { return int64(lane+1)*perLane + offset }
