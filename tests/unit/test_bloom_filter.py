"""The Bloom filter of `find_unplaced` forgets no member, and is as small as its docstring claims."""

from rota.protocol.scans import BloomFilter

MEMBERS = 20_000


def ids(prefix: str) -> list[bytes]:
    return [f"{prefix}-{number}".encode() for number in range(MEMBERS)]


def test_a_bloom_filter_finds_all_members_and_few_others() -> None:
    bloom_filter = BloomFilter(MEMBERS)
    for task_id in ids("seen"):
        bloom_filter.add(task_id)
    assert all(task_id in bloom_filter for task_id in ids("seen"))
    mistaken = sum(task_id in bloom_filter for task_id in ids("other"))
    assert mistaken < MEMBERS / 1000  # about 1 in 10,000 is expected


def test_a_bloom_filter_uses_eight_to_sixteen_bytes_per_member() -> None:
    for members in (1000, 2**14 - 1, 2**14, 50_000):
        assert 8 <= len(BloomFilter(members)._bits) / members <= 16


def test_a_bloom_filter_created_too_small_still_finds_all_members() -> None:
    bloom_filter = BloomFilter(0)
    for task_id in ids("seen"):
        bloom_filter.add(task_id)
    assert all(task_id in bloom_filter for task_id in ids("seen"))
