"""A shop's stock, with FastAPI and SQLAlchemy under READ COMMITTED, which is the default of both: what is left of an item is read,
counted down by the service, and written. Two orders at a time may read the same number; then one of them is lost.

The database is in DATABASE_URL. POST /orders/N orders item N and says what is left; GET /items/N says it, too.
POST /vouchers/N makes a voucher for item N, whose number and time the database draws, and says the number.
"""

import os
import time

from fastapi import FastAPI, HTTPException
from sqlalchemy import ForeignKey, create_engine, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

engine = create_engine(os.environ["DATABASE_URL"].replace("postgres://", "postgresql+psycopg://"), pool_size=8)
app = FastAPI()


class Base(DeclarativeBase):
    pass


class Item(Base):
    __tablename__ = "item"
    id: Mapped[int] = mapped_column(primary_key=True)
    stock: Mapped[int]


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item_id: Mapped[int] = mapped_column(ForeignKey("item.id"))


@app.post("/orders/{number}", status_code=201)
def order(number: int) -> dict[str, int]:
    with Session(engine) as session, session.begin():
        item = session.get(Item, number)
        if item is None:
            raise HTTPException(404, "there is no such item")
        # What a price service would take.
        time.sleep(0.003)
        item.stock -= 1
        session.add(Order(item_id=number))
        return {"left": item.stock}


@app.get("/items/{number}")
def left(number: int) -> dict[str, int]:
    with Session(engine) as session:
        return {"left": session.get_one(Item, number).stock}


@app.post("/vouchers/{number}", status_code=201)
def voucher(number: int) -> dict[str, str]:
    with Session(engine) as session, session.begin():
        draw = "INSERT INTO voucher (id, item_id, made) VALUES (gen_random_uuid(), :item, clock_timestamp()) RETURNING id::text"
        return {"voucher": session.scalars(text(draw), {"item": number}).one()}
