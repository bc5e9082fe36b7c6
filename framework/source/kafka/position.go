package kafka

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/waybill-go/waybill/framework/store"
)

// topicID is the id of a topic. A topic that is deleted and created again gets another id.
type topicID [16]byte

// String returns the id in the form of Kafka's tools.
func (id topicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

func parseTopicID(text string) (id topicID, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil && len(raw) != len(id) {
		err = fmt.Errorf("topic id %q has %d bytes", text, len(raw))
	}
	copy(id[:], raw)
	return id, err
}

// partition is a partition of the topic with this id, even if another topic gets the name later.
type partition struct {
	topic  topicID
	number int32
}

// position is the place before an offset of a partition.
type position struct {
	partition
	cluster, name string // the id of the cluster, and the name of the topic
	next          int64
	epoch         int32 // leader epoch of the previous record; -1 if not known
}

// storedPosition is the JSON in the column position of the cursors.
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

// parsePosition is strict, so that a position in the log of a database is not taken for one in a topic.
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
		return p, fmt.Errorf("%w: it is not a position in a Kafka topic: %.100q: %w", store.ErrPosition, raw, err)
	}
	p.cluster, p.name, p.number, p.next, p.epoch = s.Cluster, s.Topic, *s.Partition, *s.Next, *s.Epoch
	return p, nil
}

// String returns the position in the form of users: orders/3@1042.
func (p position) String() string { return recordName(p.name, p.number, p.next) }

func recordName(topic string, partition int32, offset int64) string {
	return fmt.Sprintf("%s/%d@%d", topic, partition, offset)
}

// perLane is how many of the engine's offsets each lane has. Kafka's offsets begin at 0 in every
// partition; the engine's are above 0 and identify the deliveries of a sink. So the offsets of lane 2
// begin at 3000000000000. All are exact as floating-point numbers. A partition with more records
// continues in the numbers of the next lane; there, parked deliveries still differ by slot and id.
const perLane = 1_000_000_000_000

// engineOffset returns the engine's offset for an offset of a lane's partition.
func engineOffset(lane int, offset int64) int64 { return int64(lane+1)*perLane + offset }
