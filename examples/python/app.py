"""Meeting rooms that are booked by the slot: FastAPI, SQLAlchemy and psycopg.

A booking checks in one transaction that the slot is free and takes it in the next one. Two guests who ask at the
same moment can both get it.
"""

import os
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

from fastapi import FastAPI, HTTPException, Response
from pydantic import BaseModel, Field
from sqlalchemy import ForeignKey, create_engine, func, make_url, select
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

TRANSACTION_ATTEMPTS_MAX = 20
SERIALIZATION_FAILURE = "40001"
DEADLOCK_DETECTED = "40P01"

engine = create_engine(
    make_url(os.environ["DATABASE_URL"]).set(drivername="postgresql+psycopg"),
    isolation_level="REPEATABLE READ",
    pool_size=10,
    pool_pre_ping=True,
)
Sessions = sessionmaker(engine, expire_on_commit=False)
app = FastAPI(title="Meeting rooms")

T = TypeVar("T")


class Base(DeclarativeBase):
    pass


class Room(Base):
    __tablename__ = "room"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    seats: Mapped[int]
    bookings: Mapped[int] = mapped_column(server_default="0")


class Booking(Base):
    __tablename__ = "booking"
    __mapper_args__ = {"eager_defaults": True}
    id: Mapped[int] = mapped_column(primary_key=True)
    room_id: Mapped[int] = mapped_column(ForeignKey("room.id"))
    slot: Mapped[int]
    guest: Mapped[str]
    details: Mapped[dict[str, Any]] = mapped_column(JSONB)
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "slot": self.slot,
            "guest": self.guest,
            "details": self.details,
            "created_at": self.created_at.isoformat(),
        }


class Event(Base):
    __tablename__ = "event"
    id: Mapped[int] = mapped_column(primary_key=True)
    what: Mapped[str]
    booking_id: Mapped[int]


class NewRoom(BaseModel):
    name: str
    seats: int = Field(gt=0)


class NewBooking(BaseModel):
    room: int
    slot: int
    guest: str
    details: dict[str, Any] = {}


def in_transaction(work: Callable[[Session], T]) -> T:
    """Runs `work` in a transaction of its own, again if the database could not serialize it."""
    for attempt in range(1, TRANSACTION_ATTEMPTS_MAX + 1):
        try:
            with Sessions.begin() as session:
                return work(session)
        except DBAPIError as error:
            sqlstate = getattr(error.orig, "sqlstate", None)
            if sqlstate not in (SERIALIZATION_FAILURE, DEADLOCK_DETECTED) or attempt == TRANSACTION_ATTEMPTS_MAX:
                raise
    raise AssertionError("the loop above returns or raises")


@app.post("/rooms", status_code=201)
def open_room(new: NewRoom) -> dict[str, Any]:
    def insert(session: Session) -> Room:
        room = Room(name=new.name, seats=new.seats)
        session.add(room)
        return room

    try:
        room = in_transaction(insert)
    except IntegrityError:
        raise HTTPException(409, f"there is a room {new.name} already")
    return {"id": room.id, "name": room.name, "seats": room.seats}


@app.get("/rooms/{room_id}")
def show_room(room_id: int) -> dict[str, Any]:
    with Sessions.begin() as session:
        room = session.get(Room, room_id)
        if room is None:
            raise HTTPException(404, "there is no such room")
        bookings = session.scalars(select(Booking).where(Booking.room_id == room_id).order_by(Booking.id)).all()
        return {"name": room.name, "count": room.bookings, "bookings": [booking.as_json() for booking in bookings]}


@app.post("/bookings", status_code=201)
def book(new: NewBooking) -> dict[str, Any]:
    with Sessions.begin() as session:
        if session.get(Room, new.room) is None:
            raise HTTPException(404, "there is no such room")
        same_slot = select(Booking).where(Booking.room_id == new.room, Booking.slot == new.slot)
        taken = session.scalars(same_slot.order_by(Booking.id)).first()
    if taken is not None:
        raise HTTPException(409, f"{taken.guest} was there first")

    # Here the slot can be lost to somebody else, and nothing notices.
    def insert(session: Session) -> Booking:
        booking = Booking(room_id=new.room, slot=new.slot, guest=new.guest, details=new.details)
        session.add(booking)
        return booking

    booking = in_transaction(insert)

    def count(session: Session) -> None:
        session.get_one(Room, new.room).bookings += 1
        session.add(Event(what="booked", booking_id=booking.id))

    in_transaction(count)
    return booking.as_json()


@app.delete("/bookings/{booking_id}", status_code=204)
def cancel(booking_id: int) -> Response:
    def delete(session: Session) -> None:
        booking = session.get(Booking, booking_id, with_for_update=True)
        if booking is None:
            raise HTTPException(404, "there is no such booking")
        session.delete(booking)
        session.get_one(Room, booking.room_id).bookings -= 1
        session.add(Event(what="cancelled", booking_id=booking_id))

    in_transaction(delete)
    return Response(status_code=204)


@app.get("/report")
def report() -> dict[str, Any]:
    with Sessions() as session:
        events = session.execute(
            select(Event.what, func.count(), func.max(Event.booking_id)).group_by(Event.what).order_by(Event.what)
        )
        rooms = session.scalars(select(func.json_build_object(Room.name, Room.bookings)).order_by(Room.id))
        return {"events": [list(event) for event in events], "rooms": rooms.all()}
