//! Who owns a buffer while it moves: what dropping, timing out and closing do to it.

use std::pin::pin;

use fake_store::{Action, Point, Rule, client::Closing};
use springtide::env::{Fence, Store};

use super::*;

#[tokio::test(start_paused = true)]
async fn dropping_the_call_neither_stops_it_nor_frees_its_buffer() {
    let bed = Bed::new();
    let held = bed.cluster.faults().add(Rule::new(Point::Write, Action::Stall)).unwrap();
    let bytes = pattern(1, 5000);
    {
        let call = bed.client.put(vec![put_item(&bed.pool, "k", &bytes)]);
        let deadline = bed.clock.now() + ms(50);
        assert!(bed.clock.timeout_at(deadline, call).await.is_err());
    }
    bed.cluster.faults().wait_held(held, 1).await;
    let usage = bed.pool.usage();
    assert_eq!(usage.quarantined, 0);
    assert!(usage.free < bed.pool.region().len(), "the operation holds the block");
    bed.cluster.faults().release(held);
    bed.sleep(ms(50)).await;
    assert_eq!(bed.pool.usage().free, bed.pool.region().len(), "given back when it ended");
    assert_eq!(bed.get("k", 5000).await.unwrap(), bytes, "and it has stored");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_never_awaited_runs_all_the_same() {
    let bed = Bed::new();
    drop(bed.client.put(vec![put_item(&bed.pool, "k", b"bytes")]));
    bed.sleep(ms(50)).await;
    assert_eq!(exists(&bed.client, "k").await, Ok(true));
    assert_eq!(bed.pool.usage().free, bed.pool.region().len());
}

/// The source is read while it moves: what is changed under the transfer is what is stored.
#[tokio::test(start_paused = true)]
async fn a_block_that_is_reused_under_a_put_shows() {
    let bed = Bed::new();
    let item = put_item(&bed.pool, "k", &[1; 1 << 20]);
    let (region, extent) = (bed.pool.region().clone(), *item.source.extents().last().unwrap());
    let (_, ()) = tokio::join!(bed.client.put(vec![item]), async {
        bed.sleep(ms(50)).await;
        region.dma_write(extent.offset, &vec![9; extent.len as usize]);
    });
    let stored = bed.get("k", 1 << 20).await.unwrap();
    assert_eq!(stored[0], 1);
    assert_eq!(*stored.last().unwrap(), 9, "corrupted");
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_uncertain_transfer_is_quarantined() {
    let bed = Bed::new();
    let late = Action::LateWrite(secs(5));
    bed.cluster.faults().add(Rule::new(Point::Read, late).times(1)).unwrap();
    bed.put("k", &[1; 5000]).await;
    drop(bed.client.get(vec![get_item(&bed.pool, "k", 5000)]));
    bed.sleep(secs(61)).await;
    let usage = bed.pool.usage();
    assert_eq!(usage.quarantined + usage.free, bed.pool.region().len());
    assert!(usage.quarantined > 0);
    bed.client.settle().await;
    assert_eq!(bed.client.active_transfers(), 0);
}

#[tokio::test(start_paused = true)]
async fn closing_fences() {
    let bed = Bed::new();
    bed.put("k", &[7; 5000]).await;
    bed.client.register(bed.pool.region().clone()).await.unwrap();
    let stall = Rule::new(Point::Read, Action::Stall).at_bytes(1000);
    let held = bed.cluster.faults().add(stall).unwrap();
    let mut call = pin!(bed.client.get(vec![get_item(&bed.pool, "k", 5000)]));
    let outcomes = bed.clock.timeout_at(bed.clock.now() + ms(50), call.as_mut()).await;
    assert!(outcomes.is_err(), "held");
    assert_eq!(bed.client.active_transfers(), 1);
    assert_eq!(bed.client.close().await, Fence::Fenced);
    assert_eq!(bed.client.active_transfers(), 0);
    let Outcome::Ended { buffer, result: Err(error) } = call.await.remove(0) else {
        panic!("a fenced transfer has ended");
    };
    assert_eq!(error.code.number(), -800);
    bed.cluster.faults().release(held);
    bed.sleep(secs(1)).await;
    assert!(bytes_of(&buffer)[1000..].iter().all(|byte| *byte != 7), "nothing came late");

    assert_eq!(bed.client.health_check(), 1);
    assert_eq!(bed.client.registered_bytes(), 0);
    assert_eq!(bed.put("j", b"bytes").await, -600);
    assert_eq!(bed.get("k", 5000).await, Err(-600));
    assert_eq!(exists(&bed.client, "k").await.unwrap_err().number(), -600);
    assert_eq!(bed.client.close().await, Fence::Fenced, "again");
}

#[tokio::test(start_paused = true)]
async fn closing_may_promise_nothing_or_hang() {
    let bed = Bed::new();
    bed.put("k", &[7; 5000]).await;
    let config = ClientConfig {
        closing: Closing::LeavesTransfers,
        closing_time: secs(2),
        ..ClientConfig::new(ClientId(2), "c:2")
    };
    let leaves = bed.cluster.client(config);
    let late = Action::LateWrite(secs(1));
    bed.cluster.faults().add(Rule::new(Point::Read, late).times(1)).unwrap();
    let mut outcomes = leaves.get(vec![get_item(&bed.pool, "k", 5000)]).await;
    let Outcome::Uncertain { buffer, .. } = outcomes.remove(0) else { panic!("uncertain") };
    let before = bed.clock.now();
    assert_eq!(leaves.close().await, Fence::Unknown);
    assert_eq!((bed.clock.now() - before).as_secs(), 2);
    leaves.settle().await;
    assert_eq!(bytes_of(&buffer.finish()), [7; 5000], "it came after all");

    let config = ClientConfig { closing: Closing::Hangs, ..ClientConfig::new(ClientId(3), "c:3") };
    let hangs = bed.cluster.client(config);
    let deadline = bed.clock.now() + secs(1000);
    assert!(bed.clock.timeout_at(deadline, hangs.close()).await.is_err());
}
