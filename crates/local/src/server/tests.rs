use super::*;

fn peer(uid: u32, is_operator: bool) -> Peer {
    Peer {
        owner: Owner { uid, gid: uid, name: uid.to_string() },
        is_operator,
        is_known: true,
        is_reader: false,
        login: None,
        cluster_user: None,
    }
}

#[test]
fn connections_are_bounded_for_a_user_for_all_users_and_for_operators() {
    let serving = Serving::default();
    let take = |uid, is_operator| Place::take(&serving, &peer(uid, is_operator));
    let mut places: Vec<Place> = (1..).map_while(|_| take(1, false)).collect();
    assert_eq!(places.len(), CONNECTIONS_PER_USER);
    places.extend((2..2_000).filter_map(|uid| take(uid, false)));
    assert_eq!(places.len(), CONNECTIONS_MAX);
    let operators: Vec<Place> = (1..).map_while(|_| take(0, true)).collect();
    assert_eq!(operators.len(), CONNECTIONS_MAX, "whatever users take");
    places.remove(0);
    assert!(take(1, false).is_some() && take(5_000, false).is_some());
    drop((places, operators));
    assert!(serving.lock().unwrap().is_empty());
}

#[test]
fn requests_that_never_end_are_bounded_together() {
    let serving = Serving::default();
    let take = || Place::take(&serving, &peer(1, false)).unwrap();
    let request = |bytes: usize| {
        let (mut client, server) = UnixStream::pair().unwrap();
        let mut place = take();
        let reading = std::thread::spawn(move || read_request(server, &mut place).unwrap_err());
        // Whoever is refused does not read on.
        let _ = client.write_all(&vec![b'x'; bytes]);
        drop(client);
        reading.join().unwrap()
    };
    let error = request(REQUEST_BYTES_MAX - 1);
    assert!(error.contains("has no end"), "{error}");
    let mut others = [take(), take()];
    assert!(others.iter_mut().all(|place| place.hold(REQUEST_BYTES_MAX - 1).is_some()));
    let error = request(REQUEST_BYTES_MAX - 1);
    assert!(error.contains("take too much memory together"), "{error}");
    drop(others);
    assert!(serving.lock().unwrap().is_empty());
}
